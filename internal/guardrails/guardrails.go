// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package guardrails

import (
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
)

// maxMatchConditions is the number of match conditions of each optional policy. Each additional condition excludes
// requests.
const maxMatchConditions = 1

// objectSelectors are the object selectors of the optional policies, by their label; nil selects everything.
var objectSelectors = map[string]*metav1.LabelSelector{
	internalv1alpha1.PolicyExpiry: nil,
	internalv1alpha1.PolicyProtection: {MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: v1alpha1.LabelDeletionProtection, Operator: metav1.LabelSelectorOpExists},
	}},
}

// IsEnforced reports whether the API server enforces the optional policy with a label for all requests and namespaces:
// it is not enforced if it is not installed, does not fail closed, only warns, or has exceptions.
func IsEnforced(
	label string, policies []admissionv1.ValidatingAdmissionPolicy,
	bindings []admissionv1.ValidatingAdmissionPolicyBinding,
) bool {
	return slices.ContainsFunc(policies, func(policy admissionv1.ValidatingAdmissionPolicy) bool {
		return policy.Labels[internalv1alpha1.LabelPolicy] == label && matchesEverything(label, &policy.Spec) &&
			slices.ContainsFunc(bindings, func(binding admissionv1.ValidatingAdmissionPolicyBinding) bool {
				return binding.Spec.PolicyName == policy.Name && binding.Spec.MatchResources == nil &&
					slices.Contains(binding.Spec.ValidationActions, admissionv1.Deny)
			})
	})
}

// matchesEverything reports whether a policy fails closed and excludes no requests. It does not
// check the policy's expressions; their author is responsible for them.
func matchesEverything(label string, spec *admissionv1.ValidatingAdmissionPolicySpec) bool {
	failsClosed := spec.FailurePolicy == nil || *spec.FailurePolicy == admissionv1.Fail
	matches := spec.MatchConstraints
	return failsClosed && spec.ParamKind == nil && matches != nil && len(matches.ExcludeResourceRules) == 0 &&
		selectsEverything(matches.NamespaceSelector) && hasObjectSelector(matches.ObjectSelector, objectSelectors[label]) &&
		len(spec.MatchConditions) <= maxMatchConditions
}

func hasObjectSelector(selector, expected *metav1.LabelSelector) bool {
	return selectsEverything(selector) || apiequality.Semantic.DeepEqual(selector, expected)
}

func selectsEverything(selector *metav1.LabelSelector) bool {
	return selector == nil || len(selector.MatchLabels)+len(selector.MatchExpressions) == 0
}
