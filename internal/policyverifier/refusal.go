// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package policyverifier

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
)

// isRefusal reports whether an error means that admission rejected a request. This includes
// internal errors, which the API server returns if a webhook does not respond.
func isRefusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsInternalError(err)
}

// denial matches the start of each cause that the API server returns if an admission policy denies a request, or cannot
// be evaluated. No field contains the name of the policy. What follows is the text of the policy, which can contain
// the name of another one.
var denial = regexp.MustCompile(
	`^(ValidatingAdmissionPolicy|policy) ['"]([^'"]+)['"] (with binding '[^']*' )?denied request: `)

// ownWebhookFailure matches the error of the API server if a webhook of this project does not answer.
var ownWebhookFailure = regexp.MustCompile(`failed calling webhook "[^"]+\.nslifecycle\.dev"`)

// denials returns the kinds, if known, and the names of the policies that denied a request.
func denials(refusal error) (denied []policy) {
	var status apierrors.APIStatus
	if !errors.As(refusal, &status) || status.Status().Details == nil {
		return nil
	}
	for _, cause := range status.Status().Details.Causes {
		if match := denial.FindStringSubmatch(cause.Message); match != nil {
			denied = append(denied, policy{kind: strings.TrimPrefix(match[1], "policy"), label: match[2]})
		}
	}
	return denied
}

// disproves reports whether a refusal shows that new Namespaces do not get their initializers: what injects them, or
// verifies the result, refuses. A refusal by another rule, also by one of this project, shows nothing about that.
func (i installed) disproves(refusal error) bool {
	denied := denials(refusal)
	if len(denied) == 0 {
		return ownWebhookFailure.MatchString(refusal.Error())
	}
	return slices.ContainsFunc(denied, func(by policy) bool {
		return slices.ContainsFunc(injecting(), func(ours policy) bool { return slices.Contains(i.names[ours], by.label) })
	})
}

// injecting returns the policies that inject the initializers into new Namespaces, and verify the result.
func injecting() []policy {
	return []policy{
		{kind: mutatingKind, label: internalv1alpha1.PolicyInject},
		{kind: mutatingKind, label: internalv1alpha1.PolicyRequireSet},
		{kind: validatingKind, label: internalv1alpha1.PolicyGuard},
	}
}
