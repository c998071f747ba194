// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	runtimecontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/examples/search-index/indexclient"
	"github.com/nslifecycle/nslifecycle/examples/search-index/indexserver"
)

const (
	// readyID is the ID of the first document. With a fixed ID, repeated writes are idempotent.
	readyID = "ready"
	// Delays after an error.
	firstBackoff = 200 * time.Millisecond
	maxBackoff   = time.Minute
)

// addReadiness adds the controller that writes the first document when the Namespace is Initialized. The
// initializer cannot write the document, since other initializers might still be pending.
func (c *controller) addReadiness(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).Named("readiness").
		For(&corev1.Namespace{}, builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool { return isReady(e.Object) },
			UpdateFunc: func(e event.UpdateEvent) bool { return !isReady(e.ObjectOld) && isReady(e.ObjectNew) },
			DeleteFunc: func(event.DeleteEvent) bool { return false },
		})).
		WithOptions(runtimecontroller.Options{
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstBackoff, maxBackoff),
		}).
		Complete(reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
			var namespace corev1.Namespace
			if err := mgr.GetCache().Get(ctx, request.NamespacedName, &namespace); err != nil {
				return reconcile.Result{}, client.IgnoreNotFound(err)
			}
			if !isReady(&namespace) {
				return reconcile.Result{}, nil
			}
			return reconcile.Result{}, c.logReadiness(ctx, &namespace)
		}))
}

// isReady reports whether the Namespace has an index and is initialized.
func isReady(object client.Object) bool {
	namespace, ok := object.(*corev1.Namespace)
	if !ok || namespace.DeletionTimestamp != nil || !slices.Contains(namespace.Spec.Finalizers, Finalizer) {
		return false
	}
	hadInitializer := slices.Contains(
		strings.Split(namespace.Annotations[v1alpha1.AnnotationInitializers], ","), InitializerName)
	return hadInitializer && initializedAt(namespace) != nil
}

// initializedAt returns the time at which the initialization was completed, or nil.
func initializedAt(namespace *corev1.Namespace) *time.Time {
	for _, condition := range namespace.Status.Conditions {
		if condition.Type == v1alpha1.ConditionInitializing && condition.Status == corev1.ConditionFalse &&
			condition.Reason == v1alpha1.ReasonInitialized {
			return &condition.LastTransitionTime.Time
		}
	}
	return nil
}

// logReadiness writes the first document.
func (c *controller) logReadiness(ctx context.Context, namespace *corev1.Namespace) error {
	err := c.indices.Add(ctx, IndexName(namespace), readyDocument(namespace))
	var refused *indexclient.RefusedError
	if errors.As(err, &refused) && (refused.IsFinal() || refused.IsByServer && refused.Status == http.StatusNotFound) {
		// The service rejects the document, or the index was deleted with the Namespace. A retry would
		// not help, and the namespace works without the document.
		log.FromContext(ctx).Info("Failed to write the first document", "uid", namespace.UID, "error", err.Error())
		return nil
	}
	if err != nil {
		return fmt.Errorf("failed to write the first document of index %s: %w", IndexName(namespace), err)
	}
	return nil
}

// readyDocument returns the document with the requester and the duration of the initialization. The
// same Namespace always results in the same document.
func readyDocument(namespace *corev1.Namespace) indexserver.Document {
	initialized := initializedAt(namespace).UTC()
	created := namespace.CreationTimestamp.UTC()
	requester := namespace.Annotations[v1alpha1.AnnotationRequestedBy]
	return indexserver.Document{
		ID: readyID, Time: initialized,
		Text: fmt.Sprintf("namespace %s is ready: %s created it at %s, and the initialization took %s",
			namespace.Name, requester, created.Format(time.RFC3339), initialized.Sub(created)),
		Fields: map[string]string{
			"namespace": namespace.Name, "uid": string(namespace.UID), "requestedBy": requester,
		},
	}
}
