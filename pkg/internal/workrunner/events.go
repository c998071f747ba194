// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package workrunner

import (
	"context"
	"fmt"
	"runtime/debug"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// eventHandler observes the Namespaces in all watch events, and enqueues Namespaces that match.
func (r *reconciler) eventHandler() handler.TypedEventHandler[*corev1.Namespace, reconcile.Request] {
	return handler.TypedFuncs[*corev1.Namespace, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*corev1.Namespace], queue queue) {
			if r.observe(e.Object) {
				queue.Add(requestFor(e.Object))
			}
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*corev1.Namespace], queue queue) {
			if e.ObjectOld.UID != e.ObjectNew.UID {
				r.forget(e.ObjectOld.UID)
			}
			if r.observe(e.ObjectNew) && hasChanged(e.ObjectOld, e.ObjectNew) {
				queue.Add(requestFor(e.ObjectNew))
			}
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*corev1.Namespace], _ queue) {
			r.forget(e.Object.UID)
		},
	}
}

func requestFor(namespace *corev1.Namespace) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(namespace)}
}

// hasChanged reports whether a change can be relevant to the function. It ignores status changes, because most of
// them are made by this package and the operator.
func hasChanged(before, after *corev1.Namespace) bool {
	return before.UID != after.UID ||
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
		!equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
		!equality.Semantic.DeepEqual(before.Annotations, after.Annotations) ||
		!equality.Semantic.DeepEqual(before.Spec, after.Spec)
}

// Watch calls the function again when an object of another kind changes.
type Watch struct {
	// Object specifies the kind.
	Object client.Object
	// Affects reports whether a change to the object is relevant to a Namespace; nil means always.
	Affects func(object client.Object, namespace *corev1.Namespace) bool
}

// newSource returns a source that watches the objects in the manager's cache, so that a function that reads with the
// manager's client sees the change.
func (r *reconciler) newSource(objects cache.Cache, watch Watch) source.Source {
	return withoutSync{source.Kind(objects, watch.Object,
		handler.EnqueueRequestsFromMapFunc(r.affectedNamespaces(watch)), predicate.ResourceVersionChangedPredicate{})}
}

// withoutSync is a source for which the controller does not wait. Otherwise, a missing permission to watch the
// objects would prevent all calls. The function is called for each Namespace in any case.
type withoutSync struct{ source.Source }

// affectedNamespaces returns the Namespaces for which the function must be called again now.
func (r *reconciler) affectedNamespaces(watch Watch) handler.MapFunc {
	return func(ctx context.Context, object client.Object) []reconcile.Request {
		var namespaces corev1.NamespaceList
		if err := r.cache.List(ctx, &namespaces); err != nil {
			log.FromContext(ctx).Error(err, "Failed to list namespaces", "conditionType", r.ConditionType)
			return nil
		}
		var requests []reconcile.Request
		for i := range namespaces.Items {
			namespace := &namespaces.Items[i]
			if r.Match(namespace) && (watch.Affects == nil || r.affects(ctx, watch, object, namespace)) {
				requests = append(requests, requestFor(namespace))
			}
		}
		return requests
	}
}

// affects calls the user's function. If it panics, the Namespace is reconciled.
func (r *reconciler) affects(
	ctx context.Context, watch Watch, object client.Object, namespace *corev1.Namespace,
) (isAffected bool) {
	defer func() {
		if value := recover(); value != nil {
			isAffected = true
			log.FromContext(ctx).Error(fmt.Errorf("panic: %v", value),
				"Recovered from a panic in the function passed to WithWatch",
				"conditionType", r.ConditionType, "name", namespace.Name, "stack", string(debug.Stack()))
		}
	}()
	return watch.Affects(object, namespace)
}
