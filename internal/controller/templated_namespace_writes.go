// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/metrics"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
)

// write completes the initialization of a new Namespace that contains everything, in the request that records its
// state and sets its conditions. It records the state of an initialized Namespace if it has changed. It reports whether
// the Namespace was as the pass has processed it; otherwise, the watch event for the change follows.
func (r *TemplatedNamespaceReconciler) write(
	ctx context.Context, memory *plan.Memory, outcome plan.Outcome,
) (isCurrent bool, err error) {
	processed := outcome.Namespace
	recorded, state := processed.Annotations[v1alpha1.AnnotationAppliedTemplates], outcome.State.String()
	isInitializing := template.AwaitsTemplates(processed)
	if blocking := outcome.WaitsFor(); isInitializing && blocking != nil {
		return true, r.publish(ctx, processed, *blocking, outcome)
	}
	if !isInitializing && state == recorded {
		return true, nil
	}
	// Conditions can have been written since the pass began.
	var namespace corev1.Namespace
	if err := r.Get(ctx, client.ObjectKeyFromObject(processed), &namespace); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	var patched *corev1.Namespace
	var removal initialization.PendingRemoval
	err = nsobject.RetryOnConflict(ctx, r.Live, &namespace, func(current *corev1.Namespace, version string) error {
		if !isAsProcessed(current, processed) || isInitializing && !outcome.State.HasMetadata(current) {
			return nil
		}
		annotations := map[string]string{}
		if state != recorded {
			annotations[v1alpha1.AnnotationAppliedTemplates] = state
		}
		if isInitializing {
			removal = initialization.RemovePending(current, v1alpha1.TemplatesInitializer, metav1.NewTime(r.ServerClock.Now()))
			annotations[v1alpha1.AnnotationPendingInitializers] = removal.Pending
		}
		patched = current.DeepCopy()
		return nsobject.PatchAnnotations(ctx, r.Client, patched, version, annotations, removal.Conditions)
	})
	switch {
	case err != nil:
		return false, fmt.Errorf("failed to record the templates of namespace %q: %w", processed.Name, err)
	case patched == nil:
		return false, nil
	}
	*memory = memory.Recorded()
	r.Writes.SetState(patched, outcome.State, patched.ResourceVersion)
	if isInitializing {
		now := r.ServerClock.Now()
		seconds := metrics.Seconds(metrics.StartTime(processed.CreationTimestamp, now.Add(-outcome.Elapsed)), now)
		metrics.TemplateApplyDuration.Observe(seconds)
		log.FromContext(ctx).Info("Applied the templates of a new namespace", "uid", processed.UID,
			"templates", slices.Sorted(maps.Keys(outcome.State)), "duration", now.Sub(processed.CreationTimestamp.Time))
	}
	return true, nil
}

// isAsProcessed reports whether the record and the state of a Namespace are unchanged since a pass has processed it.
func isAsProcessed(current, processed *corev1.Namespace) bool {
	const key = v1alpha1.AnnotationAppliedTemplates
	return current.UID == processed.UID && current.Annotations[key] == processed.Annotations[key] &&
		template.AwaitsTemplates(current) == template.AwaitsTemplates(processed)
}
