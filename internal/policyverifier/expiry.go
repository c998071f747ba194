// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package policyverifier

import (
	"context"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// expiryMatchConditions is the number of match conditions of the policy in config/expiry. Each
// additional condition excludes requests.
const expiryMatchConditions = 1

// IsExpiryEnforced reports whether the expiry policy denies unauthorized changes in all namespaces.
func IsExpiryEnforced(ctx context.Context, reader client.Reader) (bool, error) {
	var policies admissionv1.ValidatingAdmissionPolicyList
	var bindings admissionv1.ValidatingAdmissionPolicyBindingList
	expiry := client.MatchingLabels{v1alpha1.LabelPolicy: v1alpha1.PolicyExpiry}
	if err := listPolicies(ctx, reader, expiry, &policies, &bindings); err != nil {
		return false, err
	}
	for _, policy := range policies.Items {
		if matchesEverything(&policy.Spec) && slices.ContainsFunc(bindings.Items,
			func(binding admissionv1.ValidatingAdmissionPolicyBinding) bool {
				return binding.Spec.PolicyName == policy.Name && binding.Spec.MatchResources == nil &&
					slices.Contains(binding.Spec.ValidationActions, admissionv1.Deny)
			}) {
			return true, nil
		}
	}
	return false, nil
}

// matchesEverything reports whether a policy fails closed and excludes no requests. It does not
// check the policy's expressions; their author is responsible for them.
func matchesEverything(spec *admissionv1.ValidatingAdmissionPolicySpec) bool {
	failsClosed := spec.FailurePolicy == nil || isFail(spec.FailurePolicy)
	matches := spec.MatchConstraints
	return failsClosed && spec.ParamKind == nil && matches != nil && len(matches.ExcludeResourceRules) == 0 &&
		selectsEverything(matches.NamespaceSelector) && selectsEverything(matches.ObjectSelector) &&
		len(spec.MatchConditions) <= expiryMatchConditions
}

func selectsEverything(selector *metav1.LabelSelector) bool {
	return selector == nil || len(selector.MatchLabels)+len(selector.MatchExpressions) == 0
}
