// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package policyverifier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// Installed describes the installed admission policies of this project.
type Installed struct {
	// Guard is the guard policy, or nil if it is missing.
	Guard *admissionv1.ValidatingAdmissionPolicy
	// HasCompatGuard reports whether Guard is the variant in config/compat.
	HasCompatGuard bool

	// inject is nil if it is missing.
	inject        *admissionv1.MutatingAdmissionPolicy
	injectBinding *admissionv1.MutatingAdmissionPolicyBinding
	// validating contains the validating policies by their label.
	validating map[string][]*admissionv1.ValidatingAdmissionPolicy
	// counts contains the number of installed objects for each policy and for its bindings. A policy
	// of another kind with the same label is not a policy of this project.
	counts map[Policy]int
	// names are the names of the policies.
	names []string
}

// Policy identifies a policy of this project, or its bindings, by the policy's kind and label.
type Policy struct {
	kind, label string
	isBinding   bool
}

// required returns the number of objects that must be installed. The gate policy has a second binding, and
// the waiting-subjects policy has a second policy and binding, because a namespaceSelector does not apply to
// custom resources named "namespaces".
func (p Policy) required() int {
	if p.label == v1alpha1.PolicyGate && p.isBinding || p.label == v1alpha1.PolicyWaitingSubjects {
		return 2
	}
	return 1
}

const (
	mutatingKind   = "MutatingAdmissionPolicy"
	validatingKind = "ValidatingAdmissionPolicy"
)

// Objects returns an empty object of each type of policy and binding.
func Objects() []client.Object {
	return append(ValidatingObjects(),
		&admissionv1.MutatingAdmissionPolicy{}, &admissionv1.MutatingAdmissionPolicyBinding{})
}

// ValidatingObjects returns an empty object of each type of validating policy and binding.
func ValidatingObjects() []client.Object {
	return []client.Object{
		&admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{},
	}
}

// List returns the installed policies.
func List(ctx context.Context, reader client.Reader) (Installed, error) {
	var mutating admissionv1.MutatingAdmissionPolicyList
	var bindings admissionv1.MutatingAdmissionPolicyBindingList
	installed, err := ListValidating(ctx, reader)
	if err == nil {
		err = listPolicies(ctx, reader, client.HasLabels{v1alpha1.LabelPolicy}, &mutating, &bindings)
	}
	if err != nil {
		return Installed{}, err
	}
	labels := map[string]string{}
	for i := range mutating.Items {
		policy := &mutating.Items[i]
		label := policy.Labels[v1alpha1.LabelPolicy]
		labels[policy.Name] = label
		installed.add(mutatingKind, label, policy.Name)
		if label == v1alpha1.PolicyInject {
			installed.inject = policy
		}
	}
	for i := range bindings.Items {
		binding := &bindings.Items[i]
		label := labels[binding.Spec.PolicyName]
		installed.counts[Policy{kind: mutatingKind, label: label, isBinding: true}]++
		if label == v1alpha1.PolicyInject {
			installed.injectBinding = binding
		}
	}
	return installed, nil
}

// ListValidating returns the installed validating policies.
func ListValidating(ctx context.Context, reader client.Reader) (Installed, error) {
	var validating admissionv1.ValidatingAdmissionPolicyList
	var bindings admissionv1.ValidatingAdmissionPolicyBindingList
	if err := listPolicies(ctx, reader, client.HasLabels{v1alpha1.LabelPolicy}, &validating, &bindings); err != nil {
		return Installed{}, err
	}
	installed := Installed{counts: map[Policy]int{}, validating: map[string][]*admissionv1.ValidatingAdmissionPolicy{}}
	labels := map[string]string{}
	for i := range validating.Items {
		policy := &validating.Items[i]
		label := policy.Labels[v1alpha1.LabelPolicy]
		labels[policy.Name] = label
		installed.add(validatingKind, label, policy.Name)
		installed.validating[label] = append(installed.validating[label], policy)
		if label == v1alpha1.PolicyGuard {
			installed.Guard = policy
			installed.HasCompatGuard = policy.Labels[v1alpha1.LabelInjection] == v1alpha1.InjectionByOperator
		}
	}
	for _, binding := range bindings.Items {
		installed.counts[Policy{kind: validatingKind, label: labels[binding.Spec.PolicyName], isBinding: true}]++
	}
	return installed, nil
}

func listPolicies(
	ctx context.Context, reader client.Reader, selector client.ListOption, lists ...client.ObjectList,
) error {
	for _, list := range lists {
		if err := reader.List(ctx, list, selector, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("failed to list admission policies: %w", err)
		}
	}
	return nil
}

func (i *Installed) add(kind, label, name string) {
	i.names = append(i.names, name)
	i.counts[Policy{kind: kind, label: label}]++
}

// All returns the policies in config/default.
func All() []Policy {
	return append([]Policy{
		{kind: mutatingKind, label: v1alpha1.PolicyInject},
		{kind: mutatingKind, label: v1alpha1.PolicyComplete},
		{kind: mutatingKind, label: v1alpha1.PolicyRequireSet},
	}, Protecting()...)
}

// Protecting returns the policies that protect the state of an initialization.
func Protecting() []Policy {
	return []Policy{
		{kind: validatingKind, label: v1alpha1.PolicyGate},
		{kind: validatingKind, label: v1alpha1.PolicyWaitingSubjects},
		{kind: validatingKind, label: v1alpha1.PolicyInitializerSubjects},
		{kind: validatingKind, label: v1alpha1.PolicyGuard},
	}
}

// ForTemplates returns the policies for NamespaceTemplates. Initializers do not depend on them.
func ForTemplates() []Policy {
	return []Policy{
		{kind: validatingKind, label: v1alpha1.PolicyTemplates},
		{kind: validatingKind, label: v1alpha1.PolicyTemplateAuthors},
		{kind: validatingKind, label: v1alpha1.PolicyTemplateObjects},
	}
}

// TemplateWarning returns the end of a message about missing policies for the templates in the set, or
// "" if there are none.
func (i Installed) TemplateWarning(set *v1alpha1.NamespaceInitializerSet) string {
	missing := i.Missing(ForTemplates())
	if len(set.Templates) == 0 || len(missing) == 0 {
		return ""
	}
	return msgTemplatesUnprotected(missing)
}

// CheckForTemplates returns an error if the policies for templates are not installed.
func (i Installed) CheckForTemplates(installCommand string) error {
	if missing := i.Missing(ForTemplates()); len(missing) > 0 {
		return errors.New(msgMissingForTemplates(missing, installCommand))
	}
	return nil
}

// failingOpen returns the policies that can admit requests while an API server cannot read the set, although the
// set contains what they enforce.
func (i Installed) failingOpen(set *v1alpha1.NamespaceInitializerSet) []client.Object {
	var policies []client.Object
	if i.inject != nil && !isFail(i.inject.Spec.FailurePolicy) {
		policies = append(policies, i.inject)
	}
	for _, label := range enforcing(set) {
		for _, policy := range i.validating[label] {
			if !isFail(policy.Spec.FailurePolicy) {
				policies = append(policies, policy)
			}
		}
	}
	return policies
}

// enforcing returns the labels of the validating policies whose parameters the set contains.
func enforcing(set *v1alpha1.NamespaceInitializerSet) []string {
	var labels []string
	if len(set.Templates) > 0 {
		labels = append(labels, v1alpha1.PolicyTemplates)
	}
	if len(set.WaitingSubjects) > 0 {
		labels = append(labels, v1alpha1.PolicyWaitingSubjects)
	}
	if len(set.WaitingSubjects) > 0 || slices.ContainsFunc(set.Initializers,
		func(initializer v1alpha1.EffectiveInitializer) bool { return len(initializer.Subjects) > 0 }) {
		labels = append(labels, v1alpha1.PolicyInitializerSubjects)
	}
	return labels
}

// HasMutating reports whether the "inject" policy or the "complete" policy is installed.
func (i Installed) HasMutating() bool {
	return i.counts[Policy{kind: mutatingKind, label: v1alpha1.PolicyInject}] > 0 ||
		i.counts[Policy{kind: mutatingKind, label: v1alpha1.PolicyComplete}] > 0
}

// Missing describes the policies and bindings that are not installed.
func (i Installed) Missing(required []Policy) []string {
	var missing []string
	for _, policy := range required {
		binding := policy
		binding.isBinding = true
		switch {
		case i.counts[policy] < policy.required():
			missing = append(missing, fmt.Sprintf("%s %q", policy.kind, policy.label))
		case i.counts[binding] < binding.required():
			missing = append(missing, fmt.Sprintf("a %sBinding for %q", policy.kind, policy.label))
		}
	}
	return missing
}

// Denied reports whether one of the policies denied a request. The error message of the API server
// contains the name of the policy in single or double quotes.
func (i Installed) Denied(refusal error) bool {
	message := refusal.Error()
	for _, name := range i.names {
		if strings.Contains(message, "'"+name+"'") || strings.Contains(message, strconv.Quote(name)) {
			return true
		}
	}
	return false
}
