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
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// maxMessage is the longest message of a condition, in bytes. It is what an Event takes.
const maxMessage = 1024

// BlockedCondition returns the type of the condition that says that a Namespace does not
// get on with a stage of its life, or "" where there is nothing to get on with.
func BlockedCondition(stage Stage) corev1.NamespaceConditionType {
	switch stage {
	case StageInitializing:
		return v1alpha1.ConditionInitializationBlocked
	case StageTerminating:
		return v1alpha1.ConditionDeletionBlocked
	}
	return ""
}

// IsBlocked tells whether a Namespace has the condition that says that it does not get on
// with a stage, with status True.
func IsBlocked(namespace *corev1.Namespace, stage Stage) bool {
	condition := nscondition.Find(namespace, BlockedCondition(stage))
	return condition != nil && condition.Status == corev1.ConditionTrue
}

// ComputeBlocked returns the condition that a Namespace with findings should have, if it
// does not have it. A condition that says the same as of an earlier time is not written
// again.
func ComputeBlocked(
	namespace *corev1.Namespace, diagnosis *Diagnosis, now metav1.Time,
) []corev1.NamespaceCondition {
	want := corev1.NamespaceCondition{
		Type: BlockedCondition(diagnosis.Stage), Status: corev1.ConditionTrue, LastTransitionTime: now,
		Reason: string(diagnosis.Findings[0].Cause), Message: blockedMessage(diagnosis, now),
	}
	if have := nscondition.Find(namespace, want.Type); have != nil && have.Status == want.Status {
		if have.Reason == want.Reason && withoutTimes(have.Message) == withoutTimes(want.Message) {
			return nil
		}
		want.LastTransitionTime = have.LastTransitionTime
	}
	return []corev1.NamespaceCondition{want}
}

// ComputeMoving returns the conditions that do not hold any more where a Namespace stands
// still in this stage and in no other; "" if it stands still in none. A Namespace that
// never stood still gets none.
func ComputeMoving(namespace *corev1.Namespace, blocked Stage, now metav1.Time) []corev1.NamespaceCondition {
	var changed []corev1.NamespaceCondition
	for _, stage := range []Stage{StageInitializing, StageTerminating} {
		if stage == blocked || !IsBlocked(namespace, stage) {
			continue
		}
		changed = append(changed, corev1.NamespaceCondition{
			Type: BlockedCondition(stage), Status: corev1.ConditionFalse, LastTransitionTime: now,
			Reason: v1alpha1.ReasonProgressing, Message: movingMessage(namespace, stage),
		})
	}
	return changed
}

func movingMessage(namespace *corev1.Namespace, stage Stage) string {
	switch {
	case stage == StageTerminating:
		return "the deletion goes on"
	case namespace.DeletionTimestamp != nil:
		return "the namespace is being deleted"
	case stageOf(namespace) == StageInitializing:
		return "the initialization goes on"
	}
	return "the initialization is over"
}

// blockedMessage describes the leading finding, the time of the diagnosis, since findings mention
// how long ago something was, and the number of other findings. A message that is too long is
// truncated before its end, which has the command that shows the whole diagnosis.
func blockedMessage(diagnosis *Diagnosis, now metav1.Time) string {
	end := fmt.Sprintf(" (as of %s)", stamp(now.Time))
	if others := len(diagnosis.Findings) - 1; others > 0 {
		end += "; and " + plural(others, "more finding")
	}
	end += "; for details run: kubectl nslifecycle explain " + diagnosis.Namespace
	return nscondition.Shorten(diagnosis.Findings[0].Note(), maxMessage-len(end)) + end
}

// Note tells of a finding in one line: what it is, which objects it is about, and what to
// do first.
func (f Finding) Note() string {
	note := strings.TrimSuffix(f.Message, ".")
	if objects := f.objects(); objects != "" {
		note += "; objects: " + objects
	}
	if len(f.Remedies) > 0 {
		note += "; what to do: " + strings.TrimSuffix(f.Remedies[0], ".")
	}
	return note
}

// objects names some objects of a finding, unless the message has named them or the only
// one is the Namespace itself.
func (f Finding) objects() string {
	var names []string
	for _, object := range f.Objects {
		if object.Resource != "namespaces" && !strings.Contains(f.Message, strconv.Quote(object.Name)) {
			names = append(names, object.Resource+"/"+printable.Name(object.Name))
		}
	}
	if others := f.Count - len(f.Objects); others > 0 && len(names) > 0 {
		names = append(names, fmt.Sprintf("and %d more", others))
	}
	return strings.Join(names, ", ")
}

// Key is the same for findings that say the same of the same objects, whatever numbers
// and times they mention.
func (f Finding) Key() string {
	return fmt.Sprintf("%s %v %s", f.Cause, f.Objects, essence(f.Message))
}

// times are points in time and, as kubectl writes them, durations.
var times = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z|\b(\d+[ydhms])+\b`)

func withoutTimes(text string) string { return times.ReplaceAllString(text, "") }
