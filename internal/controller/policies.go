// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// installedPolicies are the admission policies of this project that the API server has.
type installedPolicies struct {
	inject        *admissionv1.MutatingAdmissionPolicy
	injectBinding *admissionv1.MutatingAdmissionPolicyBinding
	// found has "<policy>" for each policy and "<policy> binding" for each binding
	// that refers to it.
	found map[string]bool
}

// policies reads the policies by their label, since an installation may give them
// names with a prefix of its own.
func (a *Admission) policies(ctx context.Context) (installedPolicies, error) {
	var (
		mutating          admissionv1.MutatingAdmissionPolicyList
		mutatingBinding   admissionv1.MutatingAdmissionPolicyBindingList
		validating        admissionv1.ValidatingAdmissionPolicyList
		validatingBinding admissionv1.ValidatingAdmissionPolicyBindingList
	)
	for _, list := range []client.ObjectList{&mutating, &mutatingBinding, &validating, &validatingBinding} {
		if err := a.List(ctx, list, client.HasLabels{v1alpha1.LabelPolicy}); err != nil {
			return installedPolicies{}, fmt.Errorf("listing the admission policies: %w", err)
		}
	}

	installed := installedPolicies{found: map[string]bool{}}
	policyByName := map[string]string{}
	for i := range mutating.Items {
		policy := &mutating.Items[i]
		label := policy.Labels[v1alpha1.LabelPolicy]
		policyByName["mutating/"+policy.Name] = label
		installed.found[label] = true
		if label == v1alpha1.PolicyInject {
			installed.inject = policy
		}
	}
	for _, policy := range validating.Items {
		label := policy.Labels[v1alpha1.LabelPolicy]
		policyByName["validating/"+policy.Name] = label
		installed.found[label] = true
	}
	for i := range mutatingBinding.Items {
		binding := &mutatingBinding.Items[i]
		label := policyByName["mutating/"+binding.Spec.PolicyName]
		installed.found[label+" binding"] = true
		if label == v1alpha1.PolicyInject {
			installed.injectBinding = binding
		}
	}
	for _, binding := range validatingBinding.Items {
		installed.found[policyByName["validating/"+binding.Spec.PolicyName]+" binding"] = true
	}
	return installed, nil
}

// missing says what is not there, in words; it is empty where all is well.
func (p installedPolicies) missing() []string {
	var missing []string
	for _, policy := range []struct{ name, kind string }{
		{v1alpha1.PolicyInject, "MutatingAdmissionPolicy"},
		{v1alpha1.PolicyComplete, "MutatingAdmissionPolicy"},
		{v1alpha1.PolicyGate, "ValidatingAdmissionPolicy"},
		{v1alpha1.PolicyGuard, "ValidatingAdmissionPolicy"},
	} {
		switch {
		case !p.found[policy.name]:
			missing = append(missing, fmt.Sprintf("%s %q", policy.kind, policy.name))
		case !p.found[policy.name+" binding"]:
			missing = append(missing, fmt.Sprintf("a %sBinding for %q", policy.kind, policy.name))
		}
	}
	return missing
}
