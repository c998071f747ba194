// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/nslifecycle/nslifecycle/pkg/initializer"
	"github.com/nslifecycle/nslifecycle/test/initializers"
)

// The implementations of an initializer.
const (
	withLibrary  = "pkg/initializer"
	withClientGo = "test/initializers"
)

// serve runs in a child process: it runs no-op initializers with the given names until it is
// interrupted.
func serve(ctx context.Context, how, kubeconfig string, names []string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("failed to read the kubeconfig: %w", err)
	}
	if how == withClientGo {
		return serveWithClientGo(ctx, config, names)
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	for _, name := range names {
		err := initializer.Add(mgr, name, func(context.Context, *corev1.Namespace) (initializer.Result, error) {
			return initializer.Result{}, nil
		})
		if err != nil {
			return err
		}
	}
	return mgr.Start(ctx)
}

func serveWithClientGo(ctx context.Context, config *rest.Config, names []string) error {
	for _, name := range names {
		running, err := initializers.Start(ctx, config, name, initializers.Nothing)
		if err != nil {
			return err
		}
		defer running.Stop()
	}
	<-ctx.Done()
	return nil
}
