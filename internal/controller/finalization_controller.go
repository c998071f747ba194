// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/nslifecycle/nslifecycle/internal/finalization"
	"github.com/nslifecycle/nslifecycle/internal/finalization/throttling"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/metrics"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
)

const (
	// ownNamespaceDelay is how long the operator waits for another controller to finalize the
	// operator's own namespace before the operator reports that it refuses to finalize this
	// namespace.
	ownNamespaceDelay = 30 * time.Second
	// maxConflicts limits the attempts to remove the namespace finalizer while other clients update
	// the Namespace. An attempt succeeds only if no other client updates the Namespace during the
	// attempt. Because the attempts do not wait for the queue, they take only a few seconds in
	// total.
	maxConflicts = 500

	actionFinalize = "Finalize"
)

// FinalizationReconciler deletes the content of terminating Namespaces, reports the progress in their
// conditions, and removes the operator's entry from spec.finalizers.
type FinalizationReconciler struct {
	client.Client
	// Live reads from the API server instead of a cache.
	Live     client.Reader
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// NamespaceFinalizer is the entry of spec.finalizers that the operator owns.
	NamespaceFinalizer corev1.FinalizerName
	// OwnNamespace is the namespace that the manager runs in. It is empty if the manager runs outside the
	// cluster.
	OwnNamespace string
	// Workers is the number of Namespaces that are finalized concurrently. The default is 1. With more
	// workers, more Namespaces share list requests. The Finalizer limits the concurrent requests.
	Workers   int
	Finalizer *finalization.Finalizer
}

// SetupWithManager registers the reconciler.
func (r *FinalizationReconciler) SetupWithManager(mgr ctrl.Manager) error {
	typesChanged := handlerFor(r.handleTypeChange)
	return ctrl.NewControllerManagedBy(mgr).
		Named(finalizationControllerName).
		For(&corev1.Namespace{}, builder.WithPredicates(deletionChanged())).
		Watches(CustomResourceDefinitions(), typesChanged, builder.OnlyMetadata).
		Watches(APIServices(), typesChanged, builder.OnlyMetadata).
		WatchesRawSource(source.Func(func(ctx context.Context, queue requestQueue) error {
			r.Finalizer.Start(ctx, func(namespace string, after time.Duration) {
				queue.AddAfter(requestFor(namespace), after)
			})
			return nil
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Workers, RateLimiter: newRateLimiter(firstRetryDelay)}).
		Complete(untilStopped(r))
}

// Reconcile makes one pass over a terminating Namespace. If the API server throttles requests, Reconcile
// requeues the Namespace after the API server's Retry-After instead of the queue's backoff.
func (r *FinalizationReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	result, err := r.reconcile(ctx, req)
	if delay := throttling.RetryAfter(err); delay > 0 {
		metrics.FinalizationThrottledTotal.Inc()
		log.FromContext(ctx).Info("The API server is throttling requests", "retryAfter", delay.String(), "error", err.Error())
		return ctrl.Result{RequeueAfter: delay}, nil
	}
	return result, err
}

func (r *FinalizationReconciler) reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var namespace corev1.Namespace
	err := r.Get(ctx, req.NamespacedName, &namespace)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	if err != nil || namespace.DeletionTimestamp == nil {
		r.Finalizer.Forget(ctx, req.Name)
		return ctrl.Result{}, nil
	}
	firstSeen := r.Finalizer.FirstSeen(&namespace)
	hasFinalizer := finalization.HasFinalizer(&namespace, r.NamespaceFinalizer)
	lacksFinalizers := nsobject.LacksFinalizers(&namespace)
	reason := finalization.RefusalReason(&namespace, r.OwnNamespace)
	switch {
	// If only other finalizers remain, the controllers responsible for them own the conditions.
	case reason != "" && hasFinalizer:
		return r.refuse(ctx, &namespace, reason, firstSeen)
	// If reason is not empty, another namespace controller would delete the content that this one must not delete. An
	// agent leaves the Namespace to the namespace controller.
	case lacksFinalizers && reason == "" && r.NamespaceFinalizer == corev1.FinalizerKubernetes:
		return retryStale(r.restoreFinalizer(ctx, &namespace))
	}
	if namespace.Status.Phase != corev1.NamespaceTerminating && !lacksFinalizers {
		phase := map[string]any{"phase": corev1.NamespaceTerminating}
		if err := nsobject.PatchStatus(ctx, r.Client, &namespace, phase, ""); err != nil {
			return retryStale(err)
		}
	}
	if !hasFinalizer {
		r.Finalizer.Forget(ctx, req.Name)
		return ctrl.Result{}, nil
	}
	return r.finalize(ctx, &namespace)
}

// finalize makes one pass over the content of a Namespace. It removes the namespace finalizer if the
// Namespace is confirmed empty, and otherwise writes the conditions.
func (r *FinalizationReconciler) finalize(ctx context.Context, namespace *corev1.Namespace) (ctrl.Result, error) {
	report, err := r.Finalizer.Sync(ctx, namespace)
	switch {
	case errors.Is(err, finalization.ErrReplaced):
		return ctrl.Result{}, nil
	case err != nil:
		return ctrl.Result{}, err
	case report.ConfirmedEmpty:
		err := r.removeFinalizer(ctx, namespace, report)
		recordRejectedWrite(r.Recorder, namespace, actionFinalize, err)
		return retryStale(err)
	}
	// Conditions are written even after errors, because they report the errors. A Namespace that was
	// empty in every pass gets no conditions while it waits for the grace period to end.
	var statusErr error
	if report.HasNews || nsobject.FindCondition(namespace, corev1.NamespaceContentRemaining) != nil {
		statusErr = nsobject.IgnoreStale(r.writeConditions(ctx, namespace, report))
		recordRejectedWrite(r.Recorder, namespace, actionFinalize, statusErr)
	}
	if err := errors.Join(report.Err(), statusErr); err != nil {
		return ctrl.Result{}, fmt.Errorf("failed to delete the content of namespace %q: %w", namespace.Name, err)
	}
	return ctrl.Result{RequeueAfter: report.RequeueAfter(r.Clock.Now())}, nil
}

// removeFinalizer removes the operator's entry from spec.finalizers of a Namespace that is confirmed
// empty.
func (r *FinalizationReconciler) removeFinalizer(
	ctx context.Context, namespace *corev1.Namespace, report *finalization.Report,
) error {
	otherFinalizers := finalization.OtherFinalizers(namespace, r.NamespaceFinalizer)
	isBlocked := len(otherFinalizers) > 0 || len(namespace.Finalizers) > 0
	if isBlocked { // The conditions must be correct until the other finalizers are removed.
		if err := r.writeConditions(ctx, namespace, report); err != nil {
			return err
		}
	}
	for attempt := range maxConflicts {
		live := *namespace.DeepCopy()
		// The cached object suffices if no other client has updated the Namespace in the meantime. It has
		// no managedFields, but this matters only if other finalizers block the deletion.
		if attempt > 0 || isBlocked {
			if err := r.Live.Get(ctx, client.ObjectKeyFromObject(namespace), &live); err != nil {
				return client.IgnoreNotFound(err)
			}
		}
		if live.UID != namespace.UID || live.DeletionTimestamp == nil ||
			!finalization.HasFinalizer(&live, r.NamespaceFinalizer) {
			return nil
		}
		// A PUT request to /finalize also writes labels and annotations. The resource version prevents
		// the request from overwriting newer values.
		live.Spec.Finalizers = finalization.OtherFinalizers(&live, r.NamespaceFinalizer)
		err := r.SubResource("finalize").Update(ctx, &live, client.FieldOwner(nsobject.FieldOwner))
		switch {
		case nsobject.IsConflict(err):
			continue
		case nsobject.IsNotFound(err):
			return nil
		case err != nil:
			return fmt.Errorf("failed to remove namespace finalizer %q from namespace %q: %w",
				r.NamespaceFinalizer, namespace.Name, err)
		}
		log.FromContext(ctx).Info("Removed the namespace finalizer from an empty namespace",
			"namespaceFinalizer", r.NamespaceFinalizer, "uid", namespace.UID,
			"otherNamespaceFinalizers", live.Spec.Finalizers, "deletionTimestamp", namespace.DeletionTimestamp,
			"seconds", r.Finalizer.RecordReleased(namespace.Name))
		return nil
	}
	return fmt.Errorf("failed to remove namespace finalizer %q from namespace %q: too many update conflicts",
		r.NamespaceFinalizer, namespace.Name)
}

// restoreFinalizer adds the namespace finalizer to a terminating Namespace without finalizers, so that its content is
// deleted first. The API server itself deletes a Namespace when its last finalizer is removed, so spec.finalizers was
// already empty when the deletion was requested.
func (r *FinalizationReconciler) restoreFinalizer(ctx context.Context, namespace *corev1.Namespace) error {
	var live corev1.Namespace
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(namespace), &live); err != nil {
		return err
	}
	if live.UID != namespace.UID || !nsobject.LacksFinalizers(&live) {
		return nil
	}
	live.Spec.Finalizers = []corev1.FinalizerName{r.NamespaceFinalizer}
	if err := r.SubResource("finalize").Update(ctx, &live, client.FieldOwner(nsobject.FieldOwner)); err != nil {
		return fmt.Errorf("failed to add namespace finalizer %q to namespace %q: %w",
			r.NamespaceFinalizer, namespace.Name, err)
	}
	log.FromContext(ctx).Info("Added the namespace finalizer to a terminating namespace without finalizers",
		"namespaceFinalizer", r.NamespaceFinalizer, "uid", namespace.UID)
	return nil
}

// refuse reports in a condition why the operator does not delete the content of a Namespace.
func (r *FinalizationReconciler) refuse(
	ctx context.Context, namespace *corev1.Namespace, reason string, firstSeen time.Time,
) (ctrl.Result, error) {
	if left := ownNamespaceDelay - r.Clock.Since(firstSeen); namespace.Name == r.OwnNamespace && left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	changed := finalization.ComputeRefusal(namespace, reason, metav1.NewTime(r.Clock.Now()))
	return retryStale(r.patchConditions(ctx, namespace, changed))
}

func (r *FinalizationReconciler) writeConditions(
	ctx context.Context, namespace *corev1.Namespace, report *finalization.Report,
) error {
	// The conditions of the previous pass may have reached the cache during this pass. A comparison
	// with older conditions would cause the same conditions and Events to be written again.
	var current corev1.Namespace
	if err := r.Get(ctx, client.ObjectKeyFromObject(namespace), &current); err == nil && current.UID == namespace.UID {
		namespace = &current
	}
	return r.patchConditions(ctx, namespace,
		finalization.ComputeConditions(namespace, report, metav1.NewTime(r.Clock.Now())))
}

// patchConditions writes changed conditions, and records an Event for each condition whose status
// changed.
func (r *FinalizationReconciler) patchConditions(
	ctx context.Context, namespace *corev1.Namespace, changed []corev1.NamespaceCondition,
) error {
	// Another namespace controller may have written all other conditions.
	written := initialization.WithTerminating(namespace, changed, metav1.NewTime(r.Clock.Now()))
	if len(written) == 0 {
		return nil
	}
	before := namespace.DeepCopy()
	if err := nsobject.PatchConditions(ctx, r.Client, namespace, written, ""); err != nil {
		return err
	}
	for _, condition := range changed {
		old := nsobject.FindCondition(before, condition.Type)
		isReported := condition.Status == corev1.ConditionTrue || old != nil
		if isReported && (old == nil || old.Status != condition.Status) {
			log.FromContext(ctx).Info("A finalization condition changed", "condition", condition.Type,
				"status", condition.Status, "message", condition.Message)
			nsobject.RecordEvent(r.Recorder, before, eventTypeOf(condition), condition.Reason, actionFinalize, condition.Message)
		}
	}
	return nil
}

// eventTypeOf returns the type of the Event for a condition: Warning for failures, otherwise Normal.
// Remaining objects are not a failure.
func eventTypeOf(condition corev1.NamespaceCondition) string {
	switch condition.Type {
	case corev1.NamespaceDeletionDiscoveryFailure, corev1.NamespaceDeletionGVParsingFailure,
		corev1.NamespaceDeletionContentFailure:
		if condition.Status == corev1.ConditionTrue {
			return corev1.EventTypeWarning
		}
	}
	return corev1.EventTypeNormal
}

// handleTypeChange is called when a type may have been added or removed. It retries the Namespaces
// whose last pass failed, and does not wait for their backoff.
func (r *FinalizationReconciler) handleTypeChange(_ context.Context, _ client.Object, _ bool, queue requestQueue) {
	for _, name := range r.Finalizer.InvalidateDiscovery() {
		queue.Forget(requestFor(name))
		queue.AddAfter(requestFor(name), finalization.DiscoveryDelay)
	}
}

// deletionChanged returns a predicate that accepts the changes that the reconciler needs. It drops
// changes of conditions: a namespace controller that runs alongside the operator also writes
// conditions, and the two controllers must not trigger each other.
func deletionChanged() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return e.Object.GetDeletionTimestamp() != nil },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, beforeOK := e.ObjectOld.(*corev1.Namespace)
			after, afterOK := e.ObjectNew.(*corev1.Namespace)
			if !beforeOK || !afterOK {
				return true
			}
			isSame := before.UID == after.UID && before.DeletionTimestamp.Equal(after.DeletionTimestamp) &&
				before.Status.Phase == after.Status.Phase &&
				slices.Equal(before.Spec.Finalizers, after.Spec.Finalizers) &&
				slices.Equal(before.Finalizers, after.Finalizers)
			return after.DeletionTimestamp != nil && (!isSame || before.ResourceVersion == after.ResourceVersion)
		},
	}
}
