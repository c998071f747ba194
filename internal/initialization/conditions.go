// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// ComputeConditions returns the conditions of a Namespace that must change to match the state:
// Initializing, "<name>/Initialized" for each initializer, Ready and Stalled. It returns nil if all conditions are
// up to date. A condition without a status must be removed.
//
// A condition that an initializer has set itself is kept unless it contradicts the pending list.
// The condition of a skipped initializer is always kept.
func ComputeConditions(
	namespace *corev1.Namespace, state State, now metav1.Time,
) []corev1.NamespaceCondition {
	wanted := []corev1.NamespaceCondition{initializingCondition(namespace, state)}
	for _, name := range state.All {
		position := slices.Index(state.Pending, name)
		if position >= 0 || !isSkipped(namespace, name) {
			wanted = append(wanted, initializerCondition(name, position))
		}
	}

	var changed []corev1.NamespaceCondition
	for i, want := range wanted {
		want.Message = printable.Truncate(want.Message, maxMessage)
		current := nsobject.FindCondition(namespace, want.Type)
		// Both use the reason Initialized, but initializers with a message of their own.
		isOwn := i > 0 && current != nil && (!IsOperatorReason(current.Reason) ||
			current.Reason == v1alpha1.ReasonInitialized && want.Status == corev1.ConditionTrue)
		// An initializer may set its condition to Unknown while it works.
		if isOwn && (current.Status == corev1.ConditionTrue) == (want.Status == corev1.ConditionTrue) {
			continue
		}
		if nsobject.CompleteCondition(current, &want, now) {
			changed = append(changed, want)
		}
	}
	return append(changed, computeReady(namespace, state, now)...)
}

// IsInitializing reports whether the Initializing condition of a Namespace is True.
func IsInitializing(namespace *corev1.Namespace) bool {
	condition := nsobject.FindCondition(namespace, v1alpha1.ConditionInitializing)
	return condition != nil && condition.Status == corev1.ConditionTrue
}

// InitializedAt returns when the initialization of a Namespace ended successfully, according to its conditions. It is
// nil if this is not known, or if the Namespace never had initializers.
func InitializedAt(namespace *corev1.Namespace) *metav1.Time {
	condition := nsobject.FindCondition(namespace, v1alpha1.ConditionInitializing)
	if condition == nil || condition.Reason != v1alpha1.ReasonInitialized ||
		namespace.Annotations[v1alpha1.AnnotationInitializers] == "" {
		return nil
	}
	return &condition.LastTransitionTime
}

func initializingCondition(namespace *corev1.Namespace, state State) corev1.NamespaceCondition {
	condition := corev1.NamespaceCondition{
		Type: v1alpha1.ConditionInitializing, Status: corev1.ConditionFalse, Reason: string(state.Phase),
	}
	switch state.Phase {
	case PhaseInitializing:
		condition.Status = corev1.ConditionTrue
		condition.Message = pendingMessage(state)
	case PhaseFailed:
		condition.Message = failedMessage(state)
	case PhaseInitialized:
		condition.Message = initializedMessage(namespace, state)
	}
	return condition
}

// initializerCondition returns the condition of an initializer. The position is its index in the
// pending list, or -1 if it is not pending.
func initializerCondition(name string, position int) corev1.NamespaceCondition {
	condition := corev1.NamespaceCondition{
		Type:    initializedCondition(name),
		Status:  corev1.ConditionTrue,
		Reason:  v1alpha1.ReasonInitialized,
		Message: messageInitializerDone,
	}
	if position >= 0 {
		condition.Status = corev1.ConditionFalse
		condition.Reason = v1alpha1.ReasonPending
		condition.Message = messageInitializerPending
		if position > 0 {
			condition.Message = messageInitializerWaiting
		}
	}
	return condition
}

// IsOperatorReason reports whether the operator sets conditions with the given reason. It overwrites such a condition
// of an initializer.
func IsOperatorReason(reason string) bool {
	return reason == v1alpha1.ReasonPending || reason == v1alpha1.ReasonInitialized || IsSkipReason(reason)
}
