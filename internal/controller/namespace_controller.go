// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/servertime"
)

// ProgressInterval is the default of NamespaceReconciler.ProgressInterval. It is short enough for users
// who watch a Namespace, and long compared with the duration of a trivial initializer.
const ProgressInterval = 200 * time.Millisecond

const (
	// progressRate and progressBurst are the limits of NewProgressLimiter, in writes per second and writes.
	progressRate, progressBurst = 2, 20
	// busyDelay is the delay of a report that exceeds the limit. Most initializations end before.
	busyDelay = 3 * time.Second
)

// NewProgressLimiter returns the default of NamespaceReconciler.ProgressLimiter.
func NewProgressLimiter() flowcontrol.PassiveRateLimiter {
	return flowcontrol.NewTokenBucketPassiveRateLimiter(progressRate, progressBurst)
}

// NamespaceReconciler applies the decisions of initialization.Decide: it sets the conditions of every
// Namespace, skips initializers that have timed out or are no longer registered, and deletes Namespaces
// whose initialization has failed.
type NamespaceReconciler struct {
	client.Client
	// Live reads from the API server instead of a cache.
	Live        client.Reader
	Recorder    events.EventRecorder
	ServerClock *servertime.Clock
	// Exempt are the names of the Namespaces that are never deleted.
	Exempt []string
	// Workers is the number of Namespaces that are reconciled concurrently. The default is 1.
	Workers int
	// ProgressInterval is the minimum time between two writes that report the progress of an
	// initialization. The start and the completion are written immediately.
	ProgressInterval time.Duration
	// ProgressLimiter limits the writes that report the start or the progress of initializations; nil if
	// there is no limit. If many Namespaces are created at the same time, the initializers need the
	// capacity of the API server.
	ProgressLimiter flowcontrol.PassiveRateLimiter

	// HasTemplates registers the initializer of NamespaceTemplates. Without it, Namespaces do not wait for this
	// initializer.
	HasTemplates bool

	registry initializerRegistry
	tracker  initializationTracker
}

// Only this part holds the verb record, with which it writes its records on Namespaces.
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch;patch;delete;record
// +kubebuilder:rbac:groups="",resources=namespaces/status,verbs=patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager registers the reconciler.
func (r *NamespaceReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named(namespaceControllerName).
		// No GenerationChangedPredicate: a Namespace has no generation.
		For(&corev1.Namespace{}, builder.WithPredicates(initializationChanged())).
		Watches(&corev1.Namespace{}, r.tracker.handler(r.ServerClock)).
		Watches(&v1alpha1.NamespaceInitializerConfiguration{}, r.registry.handler(r.Client),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: r.Workers, RateLimiter: newRateLimiter(5 * time.Millisecond),
		}).
		Complete(untilStopped(r))
}

// Reconcile reconciles the initialization of one Namespace.
func (r *NamespaceReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var namespace corev1.Namespace
	if err := r.Get(ctx, req.NamespacedName, &namespace); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if nsobject.LacksFinalizers(&namespace) {
		return ctrl.Result{}, nil
	}

	registry, err := r.registry.update(ctx, r.Client, r.HasTemplates, &namespace, r.ServerClock.Now())
	if err != nil {
		return ctrl.Result{}, err
	}
	requeueAfter, err := r.apply(ctx, &namespace, registry)
	if err != nil {
		recordRejectedWrite(r.Recorder, &namespace, actionReport, err)
		return retryStale(err)
	}
	return ctrl.Result{RequeueAfter: requeueAfter}, nil
}

// initializationChanged returns a predicate that filters out updates that require no action.
func initializationChanged() predicate.Predicate {
	return predicate.Funcs{
		DeleteFunc: func(event.DeleteEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok := e.ObjectOld.(*corev1.Namespace)
			after, okAfter := e.ObjectNew.(*corev1.Namespace)
			if !ok || !okAfter {
				return true
			}
			if before.UID != after.UID || before.ResourceVersion == after.ResourceVersion {
				return true // A new Namespace, or a resync.
			}
			if after.DeletionTimestamp != nil {
				// The controllers for finalization and diagnosis write the conditions first, together with their own.
				return before.DeletionTimestamp != nil && !hasOutdatedConditions(before) && hasOutdatedConditions(after)
			}
			state := initialization.ParseState(after)
			// Another controller of the operator can shorten the pending list and set the conditions in one
			// write. The time of the next initializer's turn must still be recorded.
			hasListChanged := before.Annotations[v1alpha1.AnnotationPendingInitializers] !=
				after.Annotations[v1alpha1.AnnotationPendingInitializers]
			// A reconciliation that repairs the label does nothing else, and replaces a request that was
			// queued for a timeout. Therefore, another reconciliation must follow.
			return hasListChanged || state.LabelRepair != nil ||
				initialization.ParseState(before).LabelRepair != nil ||
				state.Phase == initialization.PhaseFailed || hasOutdatedConditions(after)
		},
	}
}

func hasOutdatedConditions(namespace *corev1.Namespace) bool {
	return len(initialization.ComputeConditions(namespace, initialization.ParseState(namespace), metav1.Time{})) > 0
}
