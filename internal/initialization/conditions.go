// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
	"github.com/nslifecycle/nslifecycle/internal/protection"
)

// ComputeConditions returns the conditions of a Namespace that must change to match the state:
// Initializing, and "<name>/Initialized" for each initializer. It returns nil if all conditions are
// up to date.
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
		want.Message = nscondition.Message(want.Message)
		current := nscondition.Find(namespace, want.Type)
		isOwn := i > 0 && current != nil && !isOperatorReason(current.Reason)
		// An initializer may set its condition to Unknown while it works.
		if isOwn && (current.Status == corev1.ConditionTrue) == (want.Status == corev1.ConditionTrue) {
			continue
		}
		if nscondition.Complete(current, &want, now) {
			changed = append(changed, want)
		}
	}
	return changed
}

// IsInitializing reports whether the Initializing condition of a Namespace is True.
func IsInitializing(namespace *corev1.Namespace) bool {
	condition := nscondition.Find(namespace, v1alpha1.ConditionInitializing)
	return condition != nil && condition.Status == corev1.ConditionTrue
}

func initializingCondition(namespace *corev1.Namespace, state State) corev1.NamespaceCondition {
	condition := corev1.NamespaceCondition{
		Type: v1alpha1.ConditionInitializing, Status: corev1.ConditionFalse,
	}
	switch state.Phase {
	case PhasePending:
		condition.Status = corev1.ConditionTrue
		condition.Reason = v1alpha1.ReasonPending
		condition.Message = pendingMessage(state)
	case PhaseFailed:
		condition.Reason = v1alpha1.ReasonFailed
		condition.Message = failedMessage(state, protection.Message(namespace))
	case PhaseCompleted:
		condition.Reason = v1alpha1.ReasonCompleted
		condition.Message = completedMessage(SkippedInitializers(namespace, state))
	case PhaseNotRequired:
		condition.Reason = v1alpha1.ReasonNotRequired
		condition.Message = messageNotRequired
	}
	return condition
}

// initializerCondition returns the condition of an initializer. The position is its index in the
// pending list, or -1 if it is not pending.
func initializerCondition(name string, position int) corev1.NamespaceCondition {
	condition := corev1.NamespaceCondition{
		Type:    initializedCondition(name),
		Status:  corev1.ConditionTrue,
		Reason:  v1alpha1.ReasonCompleted,
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

// isOperatorReason reports whether the operator sets conditions with the given reason.
func isOperatorReason(reason string) bool {
	return reason == v1alpha1.ReasonPending || reason == v1alpha1.ReasonCompleted || isSkipReason(reason)
}
