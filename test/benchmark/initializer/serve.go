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

// How an initializer is made.
const (
	withLibrary = "pkg/initializer"
	byHand      = "by hand"
)

// serve is a child process: it serves names with functions that do nothing until it is told
// to stop.
func serve(ctx context.Context, how, kubeconfig string, names []string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("reading a kubeconfig: %w", err)
	}
	if how == byHand {
		return serveByHand(ctx, config, names)
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

func serveByHand(ctx context.Context, config *rest.Config, names []string) error {
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
