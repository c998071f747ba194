// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package authorization

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/shell"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/permissions"
)

const (
	// maxAuthorizationSummary is the maximum length of the first line of the message, in bytes.
	maxAuthorizationSummary = 4096
	// maxUnknown is the number of reasons why a result is unknown that the message contains.
	maxUnknown = 5
)

// Authorization is the result of Authorizer.Check.
type Authorization struct {
	account, systemNamespace string
	// grants are the roles of which permissions are missing, with all their permissions.
	grants []permissions.Grant
	// hasFailed is true if a review has failed. No more are sent.
	hasFailed bool

	// IsAccountMissing is true if the ServiceAccount does not exist.
	IsAccountMissing bool
	// Denied and DeniedToOperator are the requests that the ServiceAccount and the operator are not allowed to send.
	Denied, DeniedToOperator []string
	// Unknown is why it is unknown whether other requests are allowed.
	Unknown []string
}

func (a *Authorization) addUnknown(text string) {
	if !slices.Contains(a.Unknown, text) {
		a.Unknown = append(a.Unknown, text)
	}
}

// Status returns the status of ConditionAuthorized.
func (a *Authorization) Status() metav1.ConditionStatus {
	switch {
	case a.IsAccountMissing || len(a.Denied) > 0 || len(a.DeniedToOperator) > 0:
		return metav1.ConditionFalse
	case len(a.Unknown) > 0:
		return metav1.ConditionUnknown
	}
	return metav1.ConditionTrue
}

// Message describes the result in one line. Further lines are the objects that grant what is missing, as YAML.
func (a *Authorization) Message(templateName string) string {
	summary := a.summary()
	if len(a.grants) == 0 && !a.IsAccountMissing {
		return printable.Truncate(summary, template.MaxConditionMessage)
	}
	summary = printable.Truncate(summary, maxAuthorizationSummary) + " To grant what is required, run: " +
		shell.Command("kubectl nslifecycle template permissions %s | kubectl apply -f -", templateName)
	// Ready and the plugin show only the first line.
	message := summary + "\n# Or apply these objects:\n" + a.objects(templateName)
	if len(message) <= template.MaxConditionMessage {
		return message
	}
	return summary
}

func (a *Authorization) summary() string {
	var parts []string
	if a.IsAccountMissing {
		parts = append(parts, fmt.Sprintf("ServiceAccount %q does not exist in namespace %q.", a.account, a.systemNamespace))
	}
	if len(a.DeniedToOperator) > 0 {
		parts = append(parts, fmt.Sprintf("The operator cannot impersonate ServiceAccount %q. It lacks permissions: %s.",
			a.account, strings.Join(a.DeniedToOperator, ", ")))
	}
	if len(a.Denied) > 0 {
		parts = append(parts, fmt.Sprintf("ServiceAccount %q lacks permissions, for example: %s.",
			a.account, strings.Join(a.Denied, ", ")))
	}
	if len(a.Unknown) > 0 {
		parts = append(parts, fmt.Sprintf("It is unknown whether ServiceAccount %q can apply all objects: %s.",
			a.account, strings.Join(a.Unknown[:min(len(a.Unknown), maxUnknown)], "; ")))
	}
	if len(parts) == 0 {
		return fmt.Sprintf("ServiceAccount %q has the permissions that the template requires.", a.account)
	}
	return strings.Join(strings.Fields(strings.Join(parts, " ")), " ")
}

// objects returns the objects that grant what is required as YAML documents.
func (a *Authorization) objects(templateName string) string {
	var objects []client.Object
	if a.IsAccountMissing {
		objects = append(objects, permissions.ServiceAccount(a.systemNamespace, a.account))
	}
	for _, grant := range a.grants {
		objects = append(objects, grant.Objects(templateName)...)
	}
	return permissions.YAML(objects)
}
