// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalizer

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/pkg/internal/workrunner"
)

// newHandler returns the handler that calls the function and removes the finalizer. The client must not read from a
// cache.
func newHandler(c client.Client, name corev1.FinalizerName, fn Func, options options) workrunner.Handler {
	matches := func(namespace *corev1.Namespace) bool {
		return namespace.DeletionTimestamp != nil && slices.Contains(namespace.Spec.Finalizers, name) &&
			(!options.isAfterContent || !slices.Contains(namespace.Spec.Finalizers, corev1.FinalizerKubernetes))
	}
	return workrunner.Handler{
		ConditionType: corev1.NamespaceConditionType(name),
		DoneReason:    "Released",
		DoneMessage:   "The cleanup is complete and the namespace finalizer was removed",
		Match:         matches,
		Call:          fn,
		Finish: func(ctx context.Context, namespace *corev1.Namespace) (bool, error) {
			// Each duplicate of the finalizer would block the deletion.
			remove := func(finalizers []corev1.FinalizerName) []corev1.FinalizerName {
				return slices.DeleteFunc(finalizers, func(other corev1.FinalizerName) bool { return other == name })
			}
			return workrunner.UpdateFinalizers(ctx, c, namespace, matches, remove)
		},
	}
}

// addAdder adds the controller that adds the finalizer to selected Namespaces. It needs all Namespaces, so it uses
// the manager's cache.
func addAdder(mgr manager.Manager, name corev1.FinalizerName, options options) error {
	c, err := workrunner.NewClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	add := func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		var namespace corev1.Namespace
		if err := mgr.GetCache().Get(ctx, req.NamespacedName, &namespace); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		selects := func(current *corev1.Namespace) bool { return options.selects(current.DeepCopy()) }
		err := workrunner.AddFinalizer(ctx, c, &namespace, name, selects)
		return reconcile.Result{}, nsobject.IgnoreStale(err)
	}
	return builder.ControllerManagedBy(mgr).Named("finalizer " + string(name) + " (add)").For(&corev1.Namespace{}).
		WithOptions(options.ForController()).Complete(reconcile.Func(add))
}
