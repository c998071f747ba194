// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// installedPolicies are the admission policies of this project that the API server has.
type installedPolicies struct {
	inject        *admissionv1.MutatingAdmissionPolicy
	injectBinding *admissionv1.MutatingAdmissionPolicyBinding
	guard         *admissionv1.ValidatingAdmissionPolicy
	// isForOperator reports whether guard is the one of config/compat.
	isForOperator bool
	// found counts the policies, and the bindings by the policy that they refer to. The
	// kind is a part of the key: a policy of another kind with the same label is not part of
	// this project.
	found map[installedPolicy]int
	// names are the names of the policies.
	names []string
}

// installedPolicy is a policy or, where isBinding is set, a binding for it.
type installedPolicy struct {
	kind, name string
	isBinding  bool
}

// bindings returns how many bindings the policy needs. The gate has a second one, for custom
// resources named "namespaces", to which its namespaceSelector does not apply.
func (p installedPolicy) bindings() int {
	if p.name == v1alpha1.PolicyGate {
		return 2
	}
	return 1
}

// The kinds of policies, as people know them.
const (
	mutatingKind   = "MutatingAdmissionPolicy"
	validatingKind = "ValidatingAdmissionPolicy"
)

// policies reads the policies by their label, since an installation may give them
// names with a prefix of its own.
func (a *Admission) policies(ctx context.Context) (installedPolicies, error) {
	var (
		mutating          admissionv1.MutatingAdmissionPolicyList
		mutatingBinding   admissionv1.MutatingAdmissionPolicyBindingList
		validating        admissionv1.ValidatingAdmissionPolicyList
		validatingBinding admissionv1.ValidatingAdmissionPolicyBindingList
	)
	lists := []client.ObjectList{&validating, &validatingBinding}
	if !a.Server.LacksMutatingPolicies {
		lists = append(lists, &mutating, &mutatingBinding)
	}
	for _, list := range lists {
		if err := a.List(ctx, list, client.HasLabels{v1alpha1.LabelPolicy}); err != nil {
			return installedPolicies{}, fmt.Errorf("listing the admission policies: %w", err)
		}
	}

	installed := installedPolicies{found: map[installedPolicy]int{}}
	mutatingLabels, validatingLabels := map[string]string{}, map[string]string{}
	for i := range mutating.Items {
		policy := &mutating.Items[i]
		label := policy.Labels[v1alpha1.LabelPolicy]
		mutatingLabels[policy.Name] = label
		installed.names = append(installed.names, policy.Name)
		installed.found[installedPolicy{kind: mutatingKind, name: label}]++
		if label == v1alpha1.PolicyInject {
			installed.inject = policy
		}
	}
	for i := range validating.Items {
		policy := &validating.Items[i]
		label := policy.Labels[v1alpha1.LabelPolicy]
		validatingLabels[policy.Name] = label
		installed.names = append(installed.names, policy.Name)
		installed.found[installedPolicy{kind: validatingKind, name: label}]++
		if label == v1alpha1.PolicyGuard {
			installed.guard = policy
			installed.isForOperator = policy.Labels[v1alpha1.LabelInjection] == v1alpha1.InjectionByOperator
		}
	}
	for i := range mutatingBinding.Items {
		binding := &mutatingBinding.Items[i]
		label := mutatingLabels[binding.Spec.PolicyName]
		installed.found[installedPolicy{kind: mutatingKind, name: label, isBinding: true}]++
		if label == v1alpha1.PolicyInject {
			installed.injectBinding = binding
		}
	}
	for _, binding := range validatingBinding.Items {
		label := validatingLabels[binding.Spec.PolicyName]
		installed.found[installedPolicy{kind: validatingKind, name: label, isBinding: true}]++
	}
	return installed, nil
}

// allPolicies are those of config/default.
func allPolicies() []installedPolicy {
	return append([]installedPolicy{
		{kind: mutatingKind, name: v1alpha1.PolicyInject},
		{kind: mutatingKind, name: v1alpha1.PolicyComplete},
		{kind: validatingKind, name: v1alpha1.PolicyRequireSet},
	}, validatingPolicies()...)
}

// validatingPolicies are those of config/compat.
func validatingPolicies() []installedPolicy {
	return []installedPolicy{
		{kind: validatingKind, name: v1alpha1.PolicyGate},
		{kind: validatingKind, name: v1alpha1.PolicyGuard},
	}
}

// hasMutating reports whether the API server has a policy that mutates namespaces.
func (p installedPolicies) hasMutating() bool {
	return p.found[installedPolicy{kind: mutatingKind, name: v1alpha1.PolicyInject}] > 0 ||
		p.found[installedPolicy{kind: mutatingKind, name: v1alpha1.PolicyComplete}] > 0
}

// missing says which of these are not there, in words; it is empty where all is well.
func (p installedPolicies) missing(needed []installedPolicy) []string {
	var missing []string
	for _, policy := range needed {
		binding := policy
		binding.isBinding = true
		switch {
		case p.found[policy] == 0:
			missing = append(missing, fmt.Sprintf("%s %q", policy.kind, policy.name))
		case p.found[binding] < policy.bindings():
			missing = append(missing, fmt.Sprintf("a %sBinding for %q", policy.kind, policy.name))
		}
	}
	return missing
}

// isOurs tells whether it is one of these policies that refuses a Namespace, by the name
// in the API server's message: 'name' or "name".
func (p installedPolicies) isOurs(refusal error) bool {
	message := refusal.Error()
	for _, name := range p.names {
		if strings.Contains(message, "'"+name+"'") || strings.Contains(message, strconv.Quote(name)) {
			return true
		}
	}
	return false
}
