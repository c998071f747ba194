// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/metrics"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
)

// apply computes the decision for a Namespace and performs its writes. If the label must be repaired,
// apply does nothing else. Otherwise, it first writes the conditions, and then skips initializers, sets
// a failure result, or deletes the Namespace. It returns the time until the next reconciliation.
func (r *NamespaceReconciler) apply(
	ctx context.Context, cached *corev1.Namespace, registry initialization.Registry,
) (time.Duration, error) {
	var decision initialization.Decision
	var delay time.Duration
	err := nsobject.RetryOnConflict(ctx, r.Live, cached, func(namespace *corev1.Namespace, resourceVersion string) error {
		decision = initialization.Decide(namespace, registry, r.Exempt, r.ServerClock.Now())
		if decision.LabelRepair != nil {
			return r.repairLabel(ctx, namespace, decision)
		}
		if decision.IsThrottled && decision.HasReport() && !decision.RequiresLiveRead() {
			delay = r.progressDelay(namespace.UID)
		}
		if !decision.HasReport() || delay > 0 {
			return nil
		}
		return r.writeReport(ctx, namespace, resourceVersion, decision)
	})
	switch {
	case err != nil || delay > 0:
		return delay, err
	case decision.RequiresLiveRead():
		return r.applyLive(ctx, cached, registry)
	case decision.State.Phase == initialization.PhaseFailed && decision.KeepReason != "":
		log.FromContext(ctx).Info("Kept a namespace whose initialization failed", "reason", decision.KeepReason)
	}
	return decision.RequeueAfter, nil
}

// progressDelay returns how long to wait before the progress of a Namespace is written.
func (r *NamespaceReconciler) progressDelay(uid types.UID) time.Duration {
	delay := r.tracker.progressDelay(uid, r.ServerClock.Now(), r.ProgressInterval)
	if delay == 0 && r.ProgressLimiter != nil && !r.ProgressLimiter.TryAccept() {
		return busyDelay
	}
	return delay
}

// applyLive handles a decision that requires a live read: it repeats the decision with objects from
// the API server, and performs its write. The API server rejects the write if the Namespace has
// changed in the meantime.
func (r *NamespaceReconciler) applyLive(
	ctx context.Context, cached *corev1.Namespace, registry initialization.Registry,
) (time.Duration, error) {
	registry, err := r.registry.confirm(ctx, r.Live, r.HasTemplates, registry)
	if err != nil {
		return 0, err
	}
	live := &corev1.Namespace{}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(cached), live); err != nil {
		return 0, fmt.Errorf("failed to get namespace %q: %w", cached.Name, err)
	}
	if live.UID != cached.UID {
		return 0, nil // The watch event for the new Namespace follows.
	}
	var decision initialization.Decision
	err = nsobject.RetryOnConflict(ctx, r.Live, live, func(namespace *corev1.Namespace, resourceVersion string) error {
		decision = initialization.Decide(namespace, registry, r.Exempt, r.ServerClock.Now())
		switch {
		case decision.Skip != nil:
			return r.skip(ctx, namespace, resourceVersion, decision.Skip)
		case decision.Fail != nil:
			return r.fail(ctx, namespace, resourceVersion, decision.Fail)
		case decision.Delete:
			return r.deleteFailed(ctx, namespace, resourceVersion)
		}
		return nil
	})
	return decision.RequeueAfter, err
}

// repairLabel makes the label consistent with the pending list. They are inconsistent if a user edited
// them while the admission policies were not installed. The patch always includes the resource version.
func (r *NamespaceReconciler) repairLabel(
	ctx context.Context, namespace *corev1.Namespace, decision initialization.Decision,
) error {
	base := namespace.DeepCopy()
	if *decision.LabelRepair == "" {
		delete(namespace.Labels, v1alpha1.LabelInitializing)
		// The guard policy does not allow the operator to remove only the label.
		delete(namespace.Annotations, v1alpha1.AnnotationPendingInitializers)
		delete(namespace.Annotations, v1alpha1.AnnotationInitializationResult)
	} else {
		if namespace.Labels == nil {
			namespace.Labels = map[string]string{}
		}
		namespace.Labels[v1alpha1.LabelInitializing] = *decision.LabelRepair
	}
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	// The policy confine allows the operator only writes of subresources of a Namespace.
	if err := r.Status().Patch(ctx, namespace, patch, client.FieldOwner(nsobject.FieldOwner)); err != nil {
		return fmt.Errorf("failed to repair label %s of namespace %q: %w", v1alpha1.LabelInitializing, namespace.Name, err)
	}
	log.FromContext(ctx).Info("Repaired the label of a namespace", "uid", base.UID,
		"label", v1alpha1.LabelInitializing, "value", *decision.LabelRepair)
	recordEvents(r.Recorder, base, decision.Events)
	return nil
}

// writeReport writes the conditions of a decision and the start of a turn, and then records its Events. The resource
// version prevents duplicate Events, and a second start of the turn, if the cache is stale.
func (r *NamespaceReconciler) writeReport(
	ctx context.Context, namespace *corev1.Namespace, resourceVersion string, decision initialization.Decision,
) error {
	before := namespace.DeepCopy()
	var annotations map[string]string
	if decision.TurnStart != nil {
		annotations = map[string]string{v1alpha1.AnnotationTurnStartedAt: *decision.TurnStart}
	}
	err := nsobject.PatchAnnotations(ctx, r.Client, namespace, resourceVersion, annotations, decision.Conditions)
	if err != nil {
		return err
	}
	if decision.State.Phase == initialization.PhaseInitializing {
		r.tracker.recordProgress(before.UID, r.ServerClock.Now())
	}
	for _, condition := range decision.Conditions {
		if condition.Type == v1alpha1.ConditionInitializing {
			log.FromContext(ctx).Info("Initialization progressed", "uid", before.UID, "reason", condition.Reason,
				"message", condition.Message, "pending", decision.State.Pending)
		}
	}
	recordEvents(r.Recorder, before, decision.Events)
	return nil
}

// skip removes initializers from the pending list and sets their conditions. It uses a single write, so
// that no client sees the shorter list without the conditions.
func (r *NamespaceReconciler) skip(
	ctx context.Context, namespace *corev1.Namespace, resourceVersion string, skip *initialization.Skip,
) error {
	before := namespace.DeepCopy()
	// An empty list completes the initialization. If the annotation were removed instead, the API server
	// would restore it.
	err := nsobject.PatchAnnotations(ctx, r.Client, namespace, resourceVersion,
		map[string]string{v1alpha1.AnnotationPendingInitializers: skip.Pending}, skip.Conditions)
	if err != nil {
		return fmt.Errorf("failed to remove initializers from the pending list of namespace %q: %w", namespace.Name, err)
	}
	metrics.InitializersSkippedTotal.WithLabelValues(skip.Reason).Add(float64(len(skip.Initializers)))
	log.FromContext(ctx).Info("Skipped initializers", "uid", before.UID, "initializers", skip.Initializers,
		"reason", skip.Reason, "pending", skip.Pending)
	recordEvents(r.Recorder, before, []initialization.Event{skip.Event})
	return nil
}

// fail sets the result that an initializer would set to report a failure. The next reconciliation
// handles the failure.
func (r *NamespaceReconciler) fail(
	ctx context.Context, namespace *corev1.Namespace, resourceVersion string, timeout *initialization.Timeout,
) error {
	uid := namespace.UID
	if err := nsobject.PatchResult(ctx, r.Client, namespace, resourceVersion, timeout.Result()); err != nil {
		return err
	}
	log.FromContext(ctx).Info("Failed an initialization that timed out", "uid", uid,
		"initializer", timeout.Initializer, "timeout", timeout.Duration.String(), "configuration", timeout.Configuration)
	return nil
}

// deletionTimeout limits the request that deletes a Namespace. It exceeds the default request timeout of the API
// server. If a webhook denies the request with the code 429, client-go repeats it up to ten times, each after the time
// that the webhook has set.
const deletionTimeout = 65 * time.Second

// deleteFailed deletes a Namespace whose initialization has failed. The conditions of the Namespace
// already report the failure.
func (r *NamespaceReconciler) deleteFailed(
	ctx context.Context, namespace *corev1.Namespace, resourceVersion string,
) error {
	preconditions := client.Preconditions{UID: &namespace.UID}
	if resourceVersion != "" {
		preconditions.ResourceVersion = &resourceVersion
	}
	deletionCtx, cancel := context.WithTimeout(ctx, deletionTimeout)
	defer cancel()
	if err := r.Delete(deletionCtx, namespace, preconditions); err != nil {
		return fmt.Errorf("failed to delete namespace %q, whose initialization failed: %w", namespace.Name, err)
	}
	log.FromContext(ctx).Info("Deleted a namespace whose initialization failed", "uid", namespace.UID)
	return nil
}

func recordEvents(recorder events.EventRecorder, namespace *corev1.Namespace, recorded []initialization.Event) {
	for _, event := range recorded {
		nsobject.RecordEvent(recorder, namespace, event.Type, event.Reason, event.Action, event.Note)
	}
}
