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
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
)

// maxConditionMessage is the maximum length of the message of a condition (metav1.Condition), in bytes.
const maxConditionMessage = 32768

// Reasons of the conditions of a template.
const (
	ReasonValid        = "Valid"
	ReasonInvalid      = "Invalid"
	ReasonAuthorized   = "Authorized"
	ReasonUnauthorized = "Unauthorized"
	ReasonUpToDate     = "UpToDate"
	ReasonUpdating     = "Updating"
	ReasonFailing      = "Failing"
	ReasonNoConflict   = "NoConflict"
	ReasonConflicting  = "Conflicting"
)

// Conditions returns the conditions of a template. Its status must contain the current counts.
func Conditions(
	template *v1alpha1.NamespaceTemplate, invalid field.ErrorList, authorization Authorization, systemNamespace string,
) []metav1.Condition {
	counts := ptr.Deref(template.Status.Namespaces, v1alpha1.TemplateNamespaceCounts{})
	outdated := counts.Selected - counts.Ready
	conditions := []metav1.Condition{
		condition(v1alpha1.ConditionValid, len(invalid) == 0, ReasonValid, ReasonInvalid, "The template is valid.",
			errorsMessage(invalid)),
		condition(v1alpha1.ConditionAuthorized, authorization.IsComplete(), ReasonAuthorized, ReasonUnauthorized,
			fmt.Sprintf("ServiceAccount %q can apply the objects.", template.Spec.ServiceAccountName),
			authorization.Message(template.Spec.ServiceAccountName, systemNamespace)),
		condition(v1alpha1.ConditionProgressing, outdated > 0, ReasonUpdating, ReasonUpToDate,
			fmt.Sprintf("%d of %d namespaces contain revision %s.", counts.Ready, counts.Selected, template.Status.Revision),
			fmt.Sprintf("All %d selected namespaces contain revision %s.", counts.Selected, template.Status.Revision)),
		condition(v1alpha1.ConditionConflicted, counts.Conflicted > 0, ReasonConflicting, ReasonNoConflict,
			fmt.Sprintf("Other clients or templates control objects in %d namespaces.", counts.Conflicted),
			"No other client or template controls objects of the template."),
	}
	if counts.Failed > 0 {
		conditions[2].Reason = ReasonFailing
		conditions[2].Message += fmt.Sprintf(" %d failed.", counts.Failed)
	}
	return conditions
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
