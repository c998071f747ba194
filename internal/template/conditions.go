// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/templateset"
)

// MaxConditionMessage is the maximum length of the message of a condition (metav1.Condition), in bytes.
const MaxConditionMessage = 32768

// unauthorizedGracePeriod is how long a template may be unauthorized before it is stalled: RBAC objects are often
// created in the same release.
const unauthorizedGracePeriod = time.Minute

// ConditionInput is what the conditions of a template depend on, in addition to its spec and counts.
type ConditionInput struct {
	Errors field.ErrorList
	// Authorized and AuthorizedMessage are the status and the message of ConditionAuthorized.
	Authorized        metav1.ConditionStatus
	AuthorizedMessage string
	// UnauthorizedFor is how long this generation of the template has not been authorized.
	UnauthorizedFor time.Duration
	// MissingSource is why a source of a copy does not exist; empty if all exist.
	MissingSource string
	// IsOmitted is true if the template does not fit into the set.
	IsOmitted bool
	// Failing is the number of Namespaces with a problem that is not local.
	Failing int32
	// IsProcessed is true if this generation of the template was applied to each Namespace that it selects.
	IsProcessed bool
	// Enforced is False until API servers add this generation of the template to new Namespaces, with the reason of the
	// condition Enforced of the set.
	Enforced metav1.Condition
	// HasFailurePause is true if the rollout is paused because of failures.
	HasFailurePause bool
	// IsCanaryPhase is true while only the canaries are updated.
	IsCanaryPhase bool
	// CanaryWaitEnd is when rollout.minReadySeconds have passed; zero if the time does not count now.
	CanaryWaitEnd time.Time
}

// Conditions returns the conditions of a template. Its status must contain the current counts. Other conditions do not
// apply any more.
func Conditions(template *v1alpha1.NamespaceTemplate, in ConditionInput) []metav1.Condition {
	counts := ptr.Deref(template.Status.Namespaces, v1alpha1.TemplateNamespaceCounts{})
	valid, authorized := validCondition(in), metav1.Condition{
		Type: v1alpha1.ConditionAuthorized, Status: in.Authorized, Reason: authorizedReasons[in.Authorized],
		Message: in.AuthorizedMessage,
	}
	progressing := progressingCondition(template, counts, in)
	if valid.Status == metav1.ConditionFalse { // No rollout can be computed.
		progressing.Status, progressing.Reason = metav1.ConditionUnknown, valid.Reason
		progressing.Message = "The template is not applied."
	}
	conflicted := condition(v1alpha1.ConditionConflicted, false, v1alpha1.ReasonNoConflict,
		"No other client or template controls objects of the template.")
	if counts.Conflicted > 0 {
		conflicted = condition(v1alpha1.ConditionConflicted, true, v1alpha1.ReasonConflicting,
			fmt.Sprintf("Other clients or templates control objects in %d namespaces.", counts.Conflicted))
	}
	ready := readyCondition(valid, authorized, in.MissingSource, in.Enforced, progressing)
	conditions := []metav1.Condition{ready, valid, authorized, progressing, conflicted}
	if ready.Status == metav1.ConditionFalse && isStalled(ready.Reason, in.UnauthorizedFor) {
		conditions = append(conditions, condition(v1alpha1.ConditionStalled, true, ready.Reason, ready.Message))
	}
	return conditions
}

var authorizedReasons = map[metav1.ConditionStatus]string{
	metav1.ConditionTrue: v1alpha1.ReasonAuthorized, metav1.ConditionFalse: v1alpha1.ReasonUnauthorized,
	metav1.ConditionUnknown: v1alpha1.ReasonAuthorizationUnknown,
}

// readyCondition summarizes the other conditions.
func readyCondition(
	valid, authorized metav1.Condition, missingSource string, enforced, progressing metav1.Condition,
) metav1.Condition {
	ready := progressing
	switch {
	case valid.Status == metav1.ConditionFalse:
		ready = valid
	case authorized.Status == metav1.ConditionFalse:
		ready = authorized
		ready.Message = firstLine(authorized.Message)
	case missingSource != "":
		ready = metav1.Condition{Reason: v1alpha1.ReasonSourceNotFound, Message: missingSource}
	case enforced.Status == metav1.ConditionFalse && progressing.Status == metav1.ConditionFalse:
		ready = enforced
		ready.Message = "New namespaces do not get the objects of the template: " + enforced.Message
	}
	isReady := ready.Type == v1alpha1.ConditionProgressing && progressing.Status == metav1.ConditionFalse
	return condition(v1alpha1.ConditionReady, isReady, ready.Reason, ready.Message)
}

// firstLine returns the message of Authorized without the objects that it contains.
func firstLine(message string) string {
	line, _, _ := strings.Cut(message, "\n")
	return line
}

// isStalled reports whether a template that is not ready for a reason cannot become ready unless a user acts. A user
// who has paused a rollout will resume it, and the operator retries what has failed.
func isStalled(reason string, unauthorizedFor time.Duration) bool {
	switch reason {
	case v1alpha1.ReasonInvalid, v1alpha1.ReasonTooManyTemplates:
		return true
	case v1alpha1.ReasonUnauthorized:
		return unauthorizedFor >= unauthorizedGracePeriod
	}
	return false
}

func validCondition(in ConditionInput) metav1.Condition {
	switch {
	case len(in.Errors) > 0:
		messages := make([]string, 0, len(in.Errors))
		for _, err := range in.Errors {
			messages = append(messages, printable.Escape(err.Error()))
		}
		return condition(v1alpha1.ConditionValid, false, v1alpha1.ReasonInvalid, strings.Join(messages, "\n"))
	case in.IsOmitted:
		return condition(v1alpha1.ConditionValid, false, v1alpha1.ReasonTooManyTemplates, fmt.Sprintf(
			"The template is not added to namespaces: the older templates are %d, or have %d KiB of selectors and parameters, "+
				"or %d KiB of metadata.",
			internalv1alpha1.MaxTemplates, templateset.MaxBytes>>10, templateset.MaxMetadataBytes>>10))
	}
	return condition(v1alpha1.ConditionValid, true, v1alpha1.ReasonValid, "The template is valid.")
}

// progressingCondition is False when all Namespaces are updated, except those that prevent it themselves: otherwise,
// their users could keep the template from becoming ready.
func progressingCondition(
	template *v1alpha1.NamespaceTemplate, counts v1alpha1.TemplateNamespaceCounts, in ConditionInput,
) metav1.Condition {
	status := template.Status
	isRollingOut := status.CurrentRevision != status.UpdateRevision
	isDone := in.IsProcessed && !isRollingOut && counts.Outdated == 0 && in.Failing == 0
	result := condition(
		v1alpha1.ConditionProgressing, !isDone, v1alpha1.ReasonUpdating, progressMessage(template, counts))
	switch {
	case isRollingOut:
		describeRollout(&result, template.Spec.Rollout.Paused, in)
	case isDone && counts.Failed+counts.Conflicted > 0:
		result.Reason = v1alpha1.ReasonIncomplete
	case isDone:
		result.Reason = v1alpha1.ReasonUpToDate
	case in.Failing > 0:
		result.Reason = v1alpha1.ReasonFailing
	}
	return result
}

// describeRollout sets what an unfinished rollout waits for in the condition Progressing.
func describeRollout(progressing *metav1.Condition, isPaused bool, in ConditionInput) {
	switch {
	case isPaused:
		progressing.Status, progressing.Reason = metav1.ConditionUnknown, v1alpha1.ReasonPaused
		progressing.Message = "The rollout is paused. " + progressing.Message
	case in.HasFailurePause:
		progressing.Status, progressing.Reason = metav1.ConditionUnknown, v1alpha1.ReasonPausedAfterFailures
		progressing.Message = "The rollout is paused because of failures. " + progressing.Message
	case !in.CanaryWaitEnd.IsZero():
		progressing.Reason = v1alpha1.ReasonWaitingForMinReadySeconds
		progressing.Message = fmt.Sprintf("The canaries contain the revision; other namespaces get it after %s. %s",
			in.CanaryWaitEnd.UTC().Format(time.RFC3339), progressing.Message)
	case in.Failing > 0:
		progressing.Reason = v1alpha1.ReasonFailing
	case in.IsCanaryPhase:
		progressing.Message = "The canaries are updated first. " + progressing.Message
	}
}

func progressMessage(template *v1alpha1.NamespaceTemplate, counts v1alpha1.TemplateNamespaceCounts) string {
	status, revision := template.Status, "revision "+template.Status.UpdateRevision
	if template.Spec.Sync.Mode == v1alpha1.SyncOnce {
		revision += " or, because of sync.mode Once, another one"
	}
	progress := fmt.Sprintf("%d of %d desired namespaces contain %s.", counts.Updated, counts.Desired, revision)
	if counts.Updated == counts.Desired {
		progress = fmt.Sprintf("All %d desired namespaces contain %s.", counts.Desired, revision)
	}
	if counts.Failed > 0 {
		progress += fmt.Sprintf(" %d failed.", counts.Failed)
	}
	if counts.Conflicted > 0 {
		progress += fmt.Sprintf(" Objects conflict in %d namespaces: see status.failures.", counts.Conflicted)
	}
	if status.CurrentRevision != status.UpdateRevision {
		progress += fmt.Sprintf(" New namespaces get revision %s.", status.CurrentRevision)
	}
	return progress
}

func condition(conditionType string, isTrue bool, reason, message string) metav1.Condition {
	status := metav1.ConditionFalse
	if isTrue {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{
		Type: conditionType, Status: status, Reason: reason, Message: printable.Cut(message, MaxConditionMessage),
	}
}
