// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Command limits is an initializer that creates a LimitRange in every new namespace.
package main

import (
	"context"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/nslifecycle/nslifecycle/pkg/initializer"
)

const name = "limits.corp.example.com"

func main() {
	ctrl.SetLogger(zap.New())
	if err := run(ctrl.SetupSignalHandler()); err != nil {
		ctrl.Log.Error(err, "Failed to run the initializer")
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{})
	if err != nil {
		return err
	}
	if err := initializer.Add(mgr, name, limits(mgr.GetClient())); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// limits returns the function that prepares one namespace.
func limits(c client.Client) initializer.Func {
	return func(ctx context.Context, namespace *corev1.Namespace) (initializer.Result, error) {
		limits := applycorev1.LimitRange("defaults", namespace.Name).WithSpec(applycorev1.LimitRangeSpec().WithLimits(
			applycorev1.LimitRangeItem().WithType(corev1.LimitTypeContainer).
				WithDefault(corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")})))
		return initializer.Result{}, c.Apply(ctx, limits, client.FieldOwner(name), client.ForceOwnership)
	}
}
