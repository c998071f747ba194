// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package workrunner

import (
	"context"
	"errors"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Watch calls the function again when an object of another kind changes.
type Watch struct {
	// Object specifies the kind.
	Object client.Object
	// Affects reports whether a change to the object is relevant to a Namespace; nil means always.
	Affects func(object client.Object, namespace *corev1.Namespace) bool
}

func (w Watch) validate() error {
	if w.Object == nil || reflect.ValueOf(w.Object).IsNil() {
		return errors.New("WithWatch(nil): the object is nil")
	}
	return nil
}

// newSource returns a source that watches the objects in the manager's cache, so that a function
// that reads with the manager's client sees the change.
func (r *Reconciler) newSource(mgr manager.Manager, watch Watch) source.Source {
	return withoutSync{source.Kind(mgr.GetCache(), watch.Object,
		handler.EnqueueRequestsFromMapFunc(r.affectedNamespaces(watch)), predicate.ResourceVersionChangedPredicate{})}
}

// withoutSync is a source for which the controller does not wait. Otherwise, a missing permission to
// watch the objects would prevent all calls. The function is called for each Namespace in any case.
type withoutSync struct{ source.Source }

// affectedNamespaces returns the Namespaces for which the function must be called again now.
func (r *Reconciler) affectedNamespaces(watch Watch) handler.MapFunc {
	return func(ctx context.Context, object client.Object) []reconcile.Request {
		var namespaces corev1.NamespaceList
		if err := r.Cache.List(ctx, &namespaces); err != nil {
			log.FromContext(ctx).Error(err, "Failed to list namespaces", "handler", r.Handler.Name)
			return nil
		}
		var requests []reconcile.Request
		for i := range namespaces.Items {
			namespace := &namespaces.Items[i]
			if r.isReady(namespace) && (watch.Affects == nil || r.affects(ctx, watch, object, namespace)) {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(namespace)})
			}
		}
		return requests
	}
}

// affects calls the user's function. If it panics, the Namespace is reconciled.
func (r *Reconciler) affects(
	ctx context.Context, watch Watch, object client.Object, namespace *corev1.Namespace,
) (affected bool) {
	defer func() {
		if value := recover(); value != nil {
			affected = true
			logger := log.FromContext(ctx).WithValues("handler", r.Handler.Name, "name", namespace.Name, "uid", namespace.UID)
			_ = LogPanic(logger, logWatchPanicked, value)
		}
	}()
	return watch.Affects(object, namespace)
}
