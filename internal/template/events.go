// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// PrefixEvent makes the reason of a problem specific in Events.
const PrefixEvent = "Template"

// Event is an Event about a template.
type Event struct {
	Type, Reason, Note string
}

// Events returns the Events for a change of the status of a template.
func Events(before, after *v1alpha1.NamespaceTemplateStatus) []Event {
	var events []Event
	for _, conditionType := range []string{v1alpha1.ConditionValid, v1alpha1.ConditionAuthorized} {
		old, now := findCondition(before, conditionType), findCondition(after, conditionType)
		if now.Status != metav1.ConditionFalse || now.Reason == old.Reason {
			continue
		}
		event := Event{Type: corev1.EventTypeWarning, Reason: now.Reason, Note: now.Message}
		switch {
		case conditionType == v1alpha1.ConditionAuthorized:
			event.Note = firstLine(now.Message)
		case now.Reason == v1alpha1.ReasonInvalid:
			event.Reason = v1alpha1.ReasonInvalidTemplate
		}
		events = append(events, event)
	}
	events = append(events, failureEvents(before.Failures, after.Failures)...)
	return append(events, rolloutEvents(before, after)...)
}

// failureEvents returns an Event for each object that fails for a new reason, with the first Namespace as an example.
func failureEvents(before, after []v1alpha1.TemplateFailure) []Event {
	var events []Event
	known := sets.Set[string]{}
	for _, failure := range before {
		known.Insert(failureKey(failure))
	}
	for _, failure := range after {
		if key := failureKey(failure); !known.Has(key) {
			known.Insert(key)
			note := fmt.Sprintf("namespace %q: %s", failure.Namespace, failure.Message)
			if failure.Object != "" {
				note = fmt.Sprintf("namespace %q, object %q: %s", failure.Namespace, failure.Object, failure.Message)
			}
			events = append(events, Event{corev1.EventTypeWarning, PrefixEvent + failure.Reason, note})
		}
	}
	return events
}

// failureKey identifies a failure that can occur in several Namespaces, whose names its message can contain.
func failureKey(failure v1alpha1.TemplateFailure) string {
	message := strings.ReplaceAll(failure.Message, strconv.Quote(failure.Namespace), "")
	return strings.Join([]string{failure.Object, failure.Reason, message}, "\n")
}

func rolloutEvents(before, after *v1alpha1.NamespaceTemplateStatus) []Event {
	old, now := findCondition(before, v1alpha1.ConditionProgressing), findCondition(after, v1alpha1.ConditionProgressing)
	isOther := before.UpdateRevision != "" && before.UpdateRevision != after.UpdateRevision
	counts := ptr.Deref(after.Namespaces, v1alpha1.TemplateNamespaceCounts{})
	var events []Event
	if now.Status == metav1.ConditionTrue && isRollingOut(after) && (isOther || !isRollingOut(before)) {
		events = append(events, Event{corev1.EventTypeNormal, v1alpha1.ReasonRolloutStarted,
			fmt.Sprintf("Started to update namespaces to revision %s.", after.UpdateRevision)})
	}
	switch {
	case now.Status == metav1.ConditionFalse && counts.Desired > 0 && (isOther || isRollingOut(before)):
		events = append(events, Event{corev1.EventTypeNormal, v1alpha1.ReasonRolloutCompleted, now.Message})
	case now.Reason == old.Reason:
	case now.Reason == v1alpha1.ReasonPaused:
		events = append(events, Event{corev1.EventTypeNormal, v1alpha1.ReasonRolloutPaused, now.Message})
	case now.Reason == v1alpha1.ReasonPausedAfterFailures:
		events = append(events, Event{corev1.EventTypeWarning, v1alpha1.ReasonRolloutPausedAfterFailures, now.Message})
	}
	return events
}

func findCondition(status *v1alpha1.NamespaceTemplateStatus, conditionType string) metav1.Condition {
	return ptr.Deref(meta.FindStatusCondition(status.Conditions, conditionType), metav1.Condition{})
}

// isRollingOut reports whether Namespaces must still get the latest revision.
func isRollingOut(status *v1alpha1.NamespaceTemplateStatus) bool {
	return status.CurrentRevision != status.UpdateRevision ||
		ptr.Deref(status.Namespaces, v1alpha1.TemplateNamespaceCounts{}).Outdated > 0
}
