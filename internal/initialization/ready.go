// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// WithTerminating adds the changes of the conditions Ready and Stalled to other changed conditions of a Namespace, if
// the Namespace is being deleted.
func WithTerminating(
	namespace *corev1.Namespace, changed []corev1.NamespaceCondition, now metav1.Time,
) []corev1.NamespaceCondition {
	if namespace.DeletionTimestamp == nil {
		return changed
	}
	after := namespace.DeepCopy()
	for _, condition := range changed {
		if current := nsobject.FindCondition(after, condition.Type); current != nil {
			*current = condition
		} else {
			after.Status.Conditions = append(after.Status.Conditions, condition)
		}
	}
	return append(slices.Clone(changed), computeReady(after, ParseState(after), now)...)
}

// computeReady returns the conditions Ready and Stalled of a Namespace that must change. A condition without a status
// must be removed.
func computeReady(namespace *corev1.Namespace, state State, now metav1.Time) []corev1.NamespaceCondition {
	ready, stalled := readyConditions(namespace, state)
	var changed []corev1.NamespaceCondition
	for _, want := range []corev1.NamespaceCondition{ready, stalled} {
		current := nsobject.FindCondition(namespace, want.Type)
		want.Message = printable.Truncate(want.Message, maxMessage)
		if want.Status == "" && current == nil {
			continue
		}
		if nsobject.CompleteCondition(current, &want, now) {
			changed = append(changed, want)
		}
	}
	return changed
}

// readyConditions returns the conditions Ready and Stalled of a Namespace. The message of Ready begins with whether
// users can write to the Namespace, and if not, continues with who must act or which condition contains this. Stalled
// has no status unless the initialization has failed: otherwise, the Namespace can become ready, or is deleted, without
// a user.
func readyConditions(namespace *corev1.Namespace, state State) (ready, stalled corev1.NamespaceCondition) {
	ready = corev1.NamespaceCondition{
		Type: v1alpha1.ConditionReady, Status: corev1.ConditionFalse, Reason: string(state.Phase),
	}
	stalled.Type = v1alpha1.ConditionStalled
	switch {
	case namespace.DeletionTimestamp != nil:
		ready.Reason = v1alpha1.ReasonTerminating
		ready.Message = messageTerminating + blockedMessage(namespace, v1alpha1.ConditionDeletionBlocked)
	case state.Phase == PhaseInitialized:
		ready.Status, ready.Message = corev1.ConditionTrue, messageUsersCanWrite
	case state.Phase == PhaseFailed:
		outcome := failedOutcome(WhyNotDelete(namespace, state, RequiredNamespaces))
		ready.Message = messageUsersCannotWrite + ": " + messageFailed + outcome
		stalled.Status, stalled.Reason, stalled.Message = corev1.ConditionTrue, ready.Reason, messageFailed
	default:
		ready.Message = messageUsersCannotWrite + "; " + waitingMessage(state)
		if state.ResultProblem != "" {
			ready.Message += messageResultIgnored
		}
		ready.Message += blockedMessage(namespace, v1alpha1.ConditionInitializationBlocked)
	}
	return ready, stalled
}

// blockedMessage refers to the condition that reports a lack of progress, as the end of a message. It is empty if the
// condition is not True.
func blockedMessage(namespace *corev1.Namespace, conditionType corev1.NamespaceConditionType) string {
	condition := nsobject.FindCondition(namespace, conditionType)
	if condition == nil || condition.Status != corev1.ConditionTrue {
		return ""
	}
	return fmt.Sprintf(messageBlocked, condition.Reason, conditionType)
}

// isFirstReport reports whether conditions are reported for the first time, so that clients could not read before
// that the Namespace is initializing. The initializer of templates usually ends before they read.
func isFirstReport(namespace *corev1.Namespace, state State) bool {
	return nsobject.FindCondition(namespace, v1alpha1.ConditionReady) == nil &&
		slices.ContainsFunc(state.Pending, func(name string) bool { return name != v1alpha1.TemplatesInitializer })
}
