// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
)

// maxMatchConditions is the number of match conditions of the policy. Each additional condition excludes requests.
const maxMatchConditions = 1

// objectSelector is the object selector of the policy.
var objectSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
	{Key: v1alpha1.LabelDeletionProtection, Operator: metav1.LabelSelectorOpExists},
}}

// IsProtectionEnforced reports whether the API server enforces the policy in config/protection for all requests and
// namespaces: it is not enforced if it is not installed, does not fail closed, only warns, or has exceptions.
func IsProtectionEnforced(
	policies []admissionv1.ValidatingAdmissionPolicy, bindings []admissionv1.ValidatingAdmissionPolicyBinding,
) bool {
	return slices.ContainsFunc(policies, func(policy admissionv1.ValidatingAdmissionPolicy) bool {
		return policy.Labels[internalv1alpha1.LabelPolicy] == internalv1alpha1.PolicyProtection &&
			matchesEverything(&policy.Spec) &&
			slices.ContainsFunc(bindings, func(binding admissionv1.ValidatingAdmissionPolicyBinding) bool {
				return binding.Spec.PolicyName == policy.Name && binding.Spec.MatchResources == nil &&
					slices.Contains(binding.Spec.ValidationActions, admissionv1.Deny)
			})
	})
}

// matchesEverything reports whether the policy fails closed and excludes no requests. It does not check the policy's
// expressions; their author is responsible for them.
func matchesEverything(spec *admissionv1.ValidatingAdmissionPolicySpec) bool {
	failsClosed := spec.FailurePolicy == nil || *spec.FailurePolicy == admissionv1.Fail
	matches := spec.MatchConstraints
	return failsClosed && spec.ParamKind == nil && matches != nil && len(matches.ExcludeResourceRules) == 0 &&
		selectsEverything(matches.NamespaceSelector) &&
		(selectsEverything(matches.ObjectSelector) ||
			apiequality.Semantic.DeepEqual(matches.ObjectSelector, objectSelector)) &&
		len(spec.MatchConditions) <= maxMatchConditions
}

func selectsEverything(selector *metav1.LabelSelector) bool {
	return selector == nil || len(selector.MatchLabels)+len(selector.MatchExpressions) == 0
}
