// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
)

// maxConditionMessage is the maximum length of the message of a condition (metav1.Condition), in bytes.
const maxConditionMessage = 32768

// Reasons of the conditions of a template.
const (
	ReasonValid        = "Valid"
	ReasonInvalid      = "Invalid"
	ReasonTooMany      = "TooMany"
	ReasonAuthorized   = "Authorized"
	ReasonUnauthorized = "Unauthorized"
	// ReasonUndetermined: the API server cannot determine whether the template can be applied.
	ReasonUndetermined = "Undetermined"
	ReasonUpToDate     = "UpToDate"
	ReasonUpdating     = "Updating"
	ReasonFailing      = "Failing"
	ReasonPaused       = "Paused"
	// ReasonPausedAfterFailures: the latest revision cannot be applied to several Namespaces.
	ReasonPausedAfterFailures = "PausedAfterFailures"

	ReasonNoConflict  = "NoConflict"
	ReasonConflicting = "Conflicting"
)

// ConditionInput is what the conditions of a template depend on, in addition to its spec and counts.
type ConditionInput struct {
	Errors field.ErrorList
	// Authorized and AuthorizedMessage are the status and the message of ConditionAuthorized.
	Authorized        metav1.ConditionStatus
	AuthorizedMessage string
	// IsOmitted is true if the template does not fit into the set.
	IsOmitted bool
	// HasFailurePause is true if the rollout is paused because of failures.
	HasFailurePause bool
}

// Conditions returns the conditions of a template. Its status must contain the current counts.
func Conditions(template *v1alpha1.NamespaceTemplate, in ConditionInput) []metav1.Condition {
	counts := ptr.Deref(template.Status.Namespaces, v1alpha1.TemplateNamespaceCounts{})
	valid := condition(v1alpha1.ConditionValid, len(in.Errors) == 0, ReasonValid, ReasonInvalid, "The template is valid.",
		errorsMessage(in.Errors))
	if in.IsOmitted && len(in.Errors) == 0 {
		valid = condition(v1alpha1.ConditionValid, false, "", ReasonTooMany, "", fmt.Sprintf("The template is not added to "+
			"namespaces: the older templates are %d, or have %d KiB of selectors and parameters.",
			v1alpha1.MaxSetTemplates, initialization.MaxTemplatesBytes>>10))
	}
	return []metav1.Condition{
		valid,
		authorizedCondition(in),
		progressingCondition(template, counts, in.HasFailurePause),
		condition(v1alpha1.ConditionConflicted, counts.Conflicted > 0, ReasonConflicting, ReasonNoConflict,
			fmt.Sprintf("Other clients or templates control objects in %d namespaces.", counts.Conflicted),
			"No other client or template controls objects of the template."),
	}
}

func authorizedCondition(in ConditionInput) metav1.Condition {
	result := condition(v1alpha1.ConditionAuthorized, in.Authorized == metav1.ConditionTrue, ReasonAuthorized,
		ReasonUnauthorized, in.AuthorizedMessage, in.AuthorizedMessage)
	if in.Authorized == metav1.ConditionUnknown {
		result.Status, result.Reason = metav1.ConditionUnknown, ReasonUndetermined
	}
	return result
}

func progressingCondition(
	template *v1alpha1.NamespaceTemplate, counts v1alpha1.TemplateNamespaceCounts, hasFailurePause bool,
) metav1.Condition {
	status := template.Status
	progress := fmt.Sprintf("%d of %d namespaces contain revision %s.", counts.Ready, counts.Selected, status.Revision)
	if counts.Failed > 0 {
		progress += fmt.Sprintf(" %d failed.", counts.Failed)
	}
	isRollingOut := status.CurrentRevision != status.Revision
	if isRollingOut {
		progress += fmt.Sprintf(" New namespaces get revision %s.", status.CurrentRevision)
	}
	result := condition(v1alpha1.ConditionProgressing, counts.Ready < counts.Selected, ReasonUpdating, ReasonUpToDate,
		progress, fmt.Sprintf("All %d selected namespaces contain revision %s.", counts.Selected, status.Revision))
	switch {
	case result.Status == metav1.ConditionFalse:
	case isRollingOut && template.Spec.Rollout.Paused:
		result.Status, result.Reason = metav1.ConditionFalse, ReasonPaused
	case isRollingOut && hasFailurePause:
		result.Status, result.Reason = metav1.ConditionFalse, ReasonPausedAfterFailures
	case counts.Failed > 0:
		result.Reason = ReasonFailing
	}
	return result
}

func condition(
	conditionType string, status bool, reasonTrue, reasonFalse, messageTrue, messageFalse string,
) metav1.Condition {
	if status {
		return metav1.Condition{
			Type: conditionType, Status: metav1.ConditionTrue, Reason: reasonTrue, Message: messageTrue,
		}
	}
	if len(messageFalse) > maxConditionMessage {
		messageFalse = nscondition.Shorten(messageFalse, maxConditionMessage)
	}
	return metav1.Condition{
		Type: conditionType, Status: metav1.ConditionFalse, Reason: reasonFalse, Message: messageFalse,
	}
}

func errorsMessage(invalid field.ErrorList) string {
	messages := make([]string, 0, len(invalid))
	for _, err := range invalid {
		messages = append(messages, nscondition.Message(err.Error()))
	}
	return strings.Join(messages, "\n")
}
