// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// maxMessage is the maximum length of a condition message in bytes. It equals the limit for the note
// of an Event.
const maxMessage = 1024

// BlockedCondition returns the type of the condition that reports a lack of progress in a state, or
// "" for StateInitialized.
func BlockedCondition(state NamespaceState) corev1.NamespaceConditionType {
	switch state {
	case StateInitializing, StateFailed:
		return v1alpha1.ConditionInitializationBlocked
	case StateTerminating:
		return v1alpha1.ConditionDeletionBlocked
	}
	return ""
}

// IsBlocked reports whether the BlockedCondition of a state has status True.
func IsBlocked(namespace *corev1.Namespace, state NamespaceState) bool {
	condition := nsobject.FindCondition(namespace, BlockedCondition(state))
	return condition != nil && condition.Status == corev1.ConditionTrue
}

// ComputeBlocked returns the condition to set on a Namespace with findings. It returns nil if the
// Namespace already has the condition, even if times and durations in the message differ.
func ComputeBlocked(
	namespace *corev1.Namespace, diagnosis *Diagnosis, now metav1.Time,
) []corev1.NamespaceCondition {
	want := corev1.NamespaceCondition{
		Type: BlockedCondition(diagnosis.State), Status: corev1.ConditionTrue,
		Reason: string(diagnosis.Findings[0].Cause), Message: blockedMessage(diagnosis, now),
	}
	have := nsobject.FindCondition(namespace, want.Type)
	if have != nil && have.Status == want.Status && have.Reason == want.Reason &&
		withoutTimes(have.Message) == withoutTimes(want.Message) {
		return nil
	}
	nsobject.CompleteCondition(have, &want, now)
	return []corev1.NamespaceCondition{want}
}

// ComputeProgressing returns the conditions to set to False on a Namespace that is blocked only in
// the given state, or in no state if blocked is empty. It returns only conditions that the
// Namespace has.
func ComputeProgressing(
	namespace *corev1.Namespace, blocked NamespaceState, now metav1.Time,
) []corev1.NamespaceCondition {
	var changed []corev1.NamespaceCondition
	for _, state := range []NamespaceState{StateInitializing, StateTerminating} {
		if BlockedCondition(state) == BlockedCondition(blocked) || !IsBlocked(namespace, state) {
			continue
		}
		changed = append(changed, corev1.NamespaceCondition{
			Type: BlockedCondition(state), Status: corev1.ConditionFalse, LastTransitionTime: now,
			Reason: v1alpha1.ReasonProgressing, Message: progressingMessage(namespace, state),
		})
	}
	return changed
}

func progressingMessage(namespace *corev1.Namespace, state NamespaceState) string {
	switch {
	case state == StateTerminating:
		return "The deletion is making progress again"
	case namespace.DeletionTimestamp != nil:
		return "The namespace is being deleted"
	case StateOf(namespace) == StateInitializing:
		return "The initialization is making progress again"
	case StateOf(namespace) == StateFailed:
		return "The initialization failed"
	}
	return "The initialization is complete"
}

// blockedMessage describes the first finding, and ends with the command that prints the whole
// diagnosis. A long description is truncated, but the command is not.
func blockedMessage(diagnosis *Diagnosis, now metav1.Time) string {
	// The message contains the time of the diagnosis, because findings contain relative times.
	end := fmt.Sprintf(" (as of %s)", FormatTime(now.Time))
	if more := len(diagnosis.Findings) - 1; more > 0 {
		end += "; and " + printable.Count(more, "more finding")
	}
	end += "; for details, run: kubectl nslifecycle explain " + diagnosis.Namespace
	return printable.Truncate(diagnosis.Findings[0].Note(), maxMessage-len(end)) + end
}

// Note returns the finding as one line: the message, the objects, and the first remedy.
func (f Finding) Note() string {
	text := strings.TrimSuffix(f.Message, ".")
	if objects := f.objectNames(); len(objects) > 0 {
		text += "; objects: " + strings.Join(objects, ", ")
	}
	if len(f.Remedies) > 0 {
		text += "; remedy: " + strings.TrimSuffix(f.Remedies[0].String(), ".")
	}
	return text
}

// objectNames returns the names of the objects, except the Namespace itself and objects that the
// message names.
func (f Finding) objectNames() []string {
	var names []string
	for _, object := range f.Objects {
		if object.Resource != "namespaces" && !strings.Contains(f.Message, strconv.Quote(object.Name)) {
			names = append(names, object.Resource+"/"+printable.Name(object.Name))
		}
	}
	if more := f.Count - len(f.Objects); more > 0 && len(names) > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return names
}

// Key returns a string that is equal for findings that differ only in numbers and times.
func (f Finding) Key() string {
	return fmt.Sprintf("%s %v %s", f.Cause, f.Objects, wordsOf(f.Message))
}

// times matches timestamps, and durations as kubectl prints them.
var times = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z|\b(\d+[ydhms])+\b`)

func withoutTimes(text string) string { return times.ReplaceAllString(text, "") }
