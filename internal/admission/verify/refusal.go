// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nslifecycle/nslifecycle/internal/admission/policies"
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

// denier is a policy that denied a request. The kind is empty if it is not known.
type denier struct{ kind, name string }

// deniers returns the policies that denied a request.
func deniers(refusal error) (found []denier) {
	var status apierrors.APIStatus
	if !errors.As(refusal, &status) || status.Status().Details == nil {
		return nil
	}
	for _, cause := range status.Status().Details.Causes {
		if match := denial.FindStringSubmatch(cause.Message); match != nil {
			found = append(found, denier{strings.TrimPrefix(match[1], "policy"), match[2]})
		}
	}
	return found
}

// disproves reports whether a refusal shows that new Namespaces do not get their initializers: what injects them, or
// verifies the result, refuses. A refusal by another rule, also by one of this project, shows nothing about that.
func (i *Installed) disproves(refusal error) bool {
	denied := deniers(refusal)
	if len(denied) == 0 {
		return ownWebhookFailure.MatchString(refusal.Error())
	}
	for _, policy := range policies.Where(func(p policies.Policy) bool { return p.Injects }) {
		for _, installed := range i.Of(policy) {
			if slices.ContainsFunc(denied, func(by denier) bool { return by.name == installed.GetName() }) {
				return true
			}
		}
	}
	return false
}
