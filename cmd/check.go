// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/installcheck"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/internal/scheme"
)

const (
	// checkTimeout is how long failed checks are retried. After an installation, a manager must start and become the
	// leader, and the API server can take up to 30 s to discover a new parameter kind.
	checkTimeout  = time.Minute
	checkInterval = 2 * time.Second
)

// errCheckFailed is the error if a check fails. The results are printed.
var errCheckFailed = errors.New("the installation is not complete")

// check runs all checks of the installation and prints the results. It retries failed checks and
// returns errCheckFailed if a check still fails after checkTimeout.
func check(ctx context.Context, restConfig *rest.Config, opts *options, out io.Writer) error {
	apiClient, err := client.New(restConfig, client.Options{Scheme: scheme.New()})
	if err != nil {
		return fmt.Errorf("failed to create a client for %s: %w", restConfig.Host, err)
	}
	checker := installcheck.Checker{
		Client: apiClient, Clock: clock.RealClock{},
		SystemNamespace: opts.SystemNamespace, LeaseName: opts.leaseName,
		HasInitialization: opts.Controllers.Runs(manager.Initialization),
	}

	var results []installcheck.Result
	err = wait.PollUntilContextTimeout(ctx, checkInterval, checkTimeout, true,
		func(ctx context.Context) (bool, error) {
			// Discard results that are incomplete because the timeout expired.
			latest := checker.Run(ctx)
			if ctx.Err() == nil || results == nil {
				results = latest
			}
			return installcheck.Join(results) == nil, nil
		})
	installcheck.Print(out, results)
	if err != nil {
		return errCheckFailed
	}
	return nil
}
