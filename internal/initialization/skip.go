// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
)

// Skip describes how initializers that have not completed are removed from the pending list.
type Skip struct {
	// Initializers are the names to remove, in order.
	Initializers []string
	// Reason is v1alpha1.ReasonTimedOut or v1alpha1.ReasonDeregistered.
	Reason string
	// Pending is the pending list without these names. It is empty if no names remain.
	Pending string
	// Conditions are the conditions of the skipped initializers.
	Conditions []corev1.NamespaceCondition
	// Event is recorded after the write.
	Event Event
}

func newSkip(namespace *corev1.Namespace, names []string, reason, cause string, now time.Time) *Skip {
	eventReason := eventTimedOut
	if reason == v1alpha1.ReasonDeregistered {
		eventReason = eventDeregistered
	}
	return &Skip{
		Initializers: names, Reason: reason,
		Pending:    removeNames(namespace.Annotations[v1alpha1.AnnotationPendingInitializers], names),
		Conditions: SkippedConditions(names, reason, "skipped: "+cause, metav1.NewTime(now)),
		// There is one Event for all names, because Events that differ only in the note are combined into
		// a series.
		Event: Event{corev1.EventTypeWarning, eventReason, actionInitialize, skippedNote(names, cause)},
	}
}

// SkippedConditions returns the conditions of skipped initializers. ComputeConditions keeps them.
func SkippedConditions(names []string, reason, message string, now metav1.Time) []corev1.NamespaceCondition {
	conditions := make([]corev1.NamespaceCondition, 0, len(names))
	for _, name := range names {
		conditions = append(conditions, corev1.NamespaceCondition{
			Type: initializedCondition(name), Status: corev1.ConditionFalse,
			Reason: reason, Message: message, LastTransitionTime: now,
		})
	}
	return conditions
}

// removeNames removes names from a pending list. The text of the remaining entries does not change,
// because the guard policy compares it. If no names remain, removeNames returns "".
func removeNames(list string, names []string) string {
	var entries []string
	for entry := range strings.SplitSeq(list, ",") {
		if !slices.Contains(names, strings.Trim(entry, blanks)) {
			entries = append(entries, entry)
		}
	}
	remaining := strings.Join(entries, ",")
	if len(SplitNames(remaining)) == 0 {
		return ""
	}
	return remaining
}

// SkippedInitializers returns the initializers of a Namespace that were skipped, in order.
func SkippedInitializers(namespace *corev1.Namespace, state State) []string {
	var skipped []string
	for _, name := range state.All {
		if !slices.Contains(state.Pending, name) && isSkipped(namespace, name) {
			skipped = append(skipped, name)
		}
	}
	return skipped
}

// isSkipped reports whether the condition of an initializer records that it was skipped.
func isSkipped(namespace *corev1.Namespace, name string) bool {
	condition := nsobject.FindCondition(namespace, initializedCondition(name))
	return condition != nil && condition.Status == corev1.ConditionFalse && IsSkipReason(condition.Reason)
}

// SkipReasons returns the reasons of the condition of an initializer that was skipped.
func SkipReasons() []string { return []string{v1alpha1.ReasonTimedOut, v1alpha1.ReasonDeregistered} }

// IsSkipReason reports whether a condition with the given reason records that an initializer was skipped.
func IsSkipReason(reason string) bool { return slices.Contains(SkipReasons(), reason) }

// initializedCondition returns the type of the condition of one initializer.
func initializedCondition(name string) corev1.NamespaceConditionType {
	return corev1.NamespaceConditionType(name + v1alpha1.ConditionInitializedSuffix)
}
