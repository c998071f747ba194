// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package authorization

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/permissions"
)

const (
	// maxAuthorizationSummary is the maximum length of the first line of the message, in bytes.
	maxAuthorizationSummary = 4096
	// maxUnknown is the number of reasons why a result is unknown that are reported.
	maxUnknown = 5

	documentSeparator = "\n---\n"
)

// Authorization is the result of Authorizer.Check.
type Authorization struct {
	account, systemNamespace string
	// grants are the roles of which permissions are missing, with all their permissions.
	grants                []permissions.Grant
	isAccountMissing      bool
	isImpersonationDenied bool
	// hasFailed is true if a review has failed. No more are sent.
	hasFailed bool
	// denied and unknown describe requests.
	denied, deniedToOperator, unknown []string
}

func (a *Authorization) addDenied(grant permissions.Grant, permission permissions.Permission) {
	if grant.IsForOperator {
		a.isImpersonationDenied = true
		a.deniedToOperator = append(a.deniedToOperator, permission.String())
		return
	}
	a.denied = append(a.denied, permission.String())
}

func (a *Authorization) addUnknown(text string) {
	if len(a.unknown) < maxUnknown && !slices.Contains(a.unknown, text) {
		a.unknown = append(a.unknown, text)
	}
}

// Status returns the status of ConditionAuthorized.
func (a *Authorization) Status() metav1.ConditionStatus {
	switch {
	case a.isAccountMissing || len(a.denied) > 0 || len(a.deniedToOperator) > 0:
		return metav1.ConditionFalse
	case len(a.unknown) > 0:
		return metav1.ConditionUnknown
	}
	return metav1.ConditionTrue
}

// Message describes the result in one line. Further lines are the objects that grant what is missing, as YAML.
func (a *Authorization) Message(templateName string) string {
	summary := a.summary()
	if len(a.grants) == 0 && !a.isAccountMissing {
		return printable.Truncate(summary, template.MaxConditionMessage)
	}
	summary = printable.Truncate(summary, maxAuthorizationSummary)
	const apply = " These objects grant what is required:"
	if message := summary + apply + a.objects(templateName); len(message) <= template.MaxConditionMessage {
		return message
	}
	return summary + " The objects that grant what is required exceed the size of this message."
}

func (a *Authorization) summary() string {
	var parts []string
	if a.isAccountMissing {
		parts = append(parts, fmt.Sprintf("ServiceAccount %q does not exist in namespace %q.", a.account, a.systemNamespace))
	}
	if len(a.deniedToOperator) > 0 {
		parts = append(parts, fmt.Sprintf("The operator cannot impersonate ServiceAccount %q. It lacks permissions: %s.",
			a.account, strings.Join(a.deniedToOperator, ", ")))
	}
	if len(a.denied) > 0 {
		parts = append(parts, fmt.Sprintf("ServiceAccount %q lacks permissions, for example: %s.",
			a.account, strings.Join(a.denied, ", ")))
	}
	if len(a.unknown) > 0 {
		parts = append(parts, fmt.Sprintf("It is unknown whether ServiceAccount %q can apply all objects: %s.",
			a.account, strings.Join(a.unknown, "; ")))
	}
	if len(parts) == 0 {
		return fmt.Sprintf("ServiceAccount %q has the permissions that the template requires.", a.account)
	}
	return strings.Join(strings.Fields(strings.Join(parts, " ")), " ")
}

// objects returns the objects that grant what is required as YAML documents.
func (a *Authorization) objects(templateName string) string {
	var objects []client.Object
	if a.isAccountMissing {
		account := &corev1.ServiceAccount{}
		account.APIVersion, account.Kind = "v1", "ServiceAccount"
		account.Namespace, account.Name = a.systemNamespace, a.account
		objects = append(objects, account)
	}
	for _, grant := range a.grants {
		objects = append(objects, grant.Objects(templateName)...)
	}
	var text strings.Builder
	for _, object := range objects {
		// Encoding these types cannot fail.
		encoded, _ := yaml.Marshal(object)
		text.WriteString(documentSeparator + strings.TrimSpace(string(encoded)))
	}
	return text.String()
}
