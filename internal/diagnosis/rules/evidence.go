// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

// quoteCondition quotes a condition of the Namespace.
func quoteCondition(condition *corev1.NamespaceCondition) string {
	return fmt.Sprintf(evidenceCondition, condition.Type, condition.Status, condition.Reason,
		diagnosis.FormatTime(condition.LastTransitionTime.Time), diagnosis.OneLine(condition.Message))
}

// quoteConditions quotes the given conditions of the Namespace that have status True.
func (f view) quoteConditions(conditionTypes ...corev1.NamespaceConditionType) []diagnosis.Evidence {
	var texts []string
	for _, conditionType := range conditionTypes {
		if condition := f.Condition(conditionType); condition != nil && condition.Status == corev1.ConditionTrue {
			texts = append(texts, quoteCondition(condition))
		}
	}
	return diagnosis.Published(texts...)
}

// finalizerEvidence describes the object that has been terminating for the longest time. It returns ""
// for a finalizer of the Namespace itself.
func finalizerEvidence(finalizer string, objects []diagnosis.RemainingObject) string {
	if len(objects) == 0 {
		return ""
	}
	first := oldest(objects)
	return fmt.Sprintf(evidenceFinalizer, first.Type, first.Name, diagnosis.FormatTime(first.DeletedAt()), finalizer)
}

// unlistedObjects describes the types with objects that were not listed. In that case, the number
// of objects in a finding is a lower bound.
func (f view) unlistedObjects(objects []diagnosis.RemainingObject) []string {
	var texts []string
	for _, content := range f.Content {
		listed := len(content.Objects)
		if listed < content.Count && slices.Contains(typesOf(objects), content.Type.String()) {
			texts = append(texts, fmt.Sprintf(evidenceUnlisted, listed, content.Count, content.Type))
		}
	}
	return texts
}

// typesOf returns the distinct types of the given objects.
func typesOf(objects []diagnosis.RemainingObject) []string {
	var names []string
	for _, object := range objects {
		names = append(names, object.Type.String())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// describe names one object, or counts several: `configmaps "a"`, "3 configmaps", "4 objects
// (configmaps, secrets)".
func describe(objects []diagnosis.RemainingObject) string {
	names := typesOf(objects)
	switch {
	case len(objects) == 1:
		return fmt.Sprintf("%s %q", names[0], objects[0].Name)
	case len(names) == 1:
		return fmt.Sprintf("%d %s", len(objects), names[0])
	}
	return fmt.Sprintf("%d objects (%s)", len(objects), diagnosis.JoinNames(names))
}

// oldest returns the object with the earliest deletionTimestamp. There must be at least one object.
func oldest(objects []diagnosis.RemainingObject) diagnosis.RemainingObject {
	return slices.MinFunc(objects, func(a, b diagnosis.RemainingObject) int {
		return a.DeletedAt().Compare(b.DeletedAt())
	})
}

// firstDeletedAt returns the earliest deletionTimestamp of the given terminating objects, or the zero
// time if there are none.
func firstDeletedAt(objects []diagnosis.RemainingObject) time.Time {
	if len(objects) == 0 {
		return time.Time{}
	}
	return oldest(objects).DeletedAt()
}

// remainingText counts the remaining objects by type.
func (f view) remainingText() string {
	var texts []string
	count, isAtLeast := 0, false
	for _, content := range f.Content {
		if content.Count == 0 {
			continue
		}
		count += content.Count
		isAtLeast = isAtLeast || content.IsAtLeast
		texts = append(texts, fmt.Sprintf("%d %s", content.Count, content.Type))
	}
	switch {
	case count == 0:
		return remainingUnknown
	case count == 1:
		return fmt.Sprintf(remainingOne, texts[0])
	case isAtLeast:
		return fmt.Sprintf(remainingAtLeast, diagnosis.JoinNames(texts))
	}
	return fmt.Sprintf(remaining, diagnosis.JoinNames(texts))
}

// countOf returns the number of remaining objects of all types.
func countOf(contents []resourcetypes.Content) int {
	count := 0
	for _, content := range contents {
		count += content.Count
	}
	return count
}

// Flags of the command that removes finalizers by force.
const (
	flagFinalizer          = "finalizer"
	flagNamespaceFinalizer = "namespace-finalizer"
	flagMetadataFinalizer  = "metadata-finalizer"
)

// forceCommand returns the command that removes a finalizer by force. Without further flags, the
// command is a dry run.
func (f view) forceCommand(flag, finalizer string) string {
	return shell.Command(remedyForce, f.Namespace.Name, flag, finalizer)
}

// inspectCommand returns the command that prints an object with its finalizers and managedFields.
func (f view) inspectCommand(object diagnosis.RemainingObject) string {
	return shell.Command(remedyInspectObject, object.Type, object.Name, f.Namespace.Name)
}
