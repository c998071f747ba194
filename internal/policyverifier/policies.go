// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package policyverifier

import (
	"context"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/confinement"
)

// installed describes the admission policies of this project.
type installed struct {
	// inject is nil if it is missing.
	inject        *admissionv1.MutatingAdmissionPolicy
	injectBinding *admissionv1.MutatingAdmissionPolicyBinding
	// validating contains the validating policies by their label.
	validating map[string][]*admissionv1.ValidatingAdmissionPolicy
	// names are the names of the installed policies. A policy of another kind with the same label is not a
	// policy of this project.
	names map[policy][]string
	// bindings are the bindings by the kind and name of the policy.
	bindings map[[2]string][]binding
}

// binding is a binding of a policy.
type binding struct {
	name string
	// isAudited reports whether the API server admits the requests that the policy does not allow.
	isAudited bool
}

// policy identifies a policy of this project by its kind and label.
type policy struct {
	kind, label string
}

// requiredBindings returns the number of bindings that the policies with a label require. Two policies have a second
// binding because the namespaceSelector of the first does not apply to custom resources named "namespaces". That of
// waiting-subjects is for a second policy.
func (p policy) requiredBindings() int {
	if p.label == internalv1alpha1.PolicyGate || p.label == internalv1alpha1.PolicyWaitingSubjects {
		return 2
	}
	return 1
}

// mayBeAudited reports whether the API server may only warn of what the policy does not allow: an administrator chooses
// this for the gate, and waiting-subjects follows. All other policies protect state.
func (p policy) mayBeAudited(isGateAudited bool) bool {
	return p.label == internalv1alpha1.PolicyGate || p.label == internalv1alpha1.PolicyWaitingSubjects && isGateAudited
}

const (
	mutatingKind   = "MutatingAdmissionPolicy"
	validatingKind = "ValidatingAdmissionPolicy"
)

// Selector selects the policies and bindings of this project.
func Selector() labels.Selector {
	ours, err := labels.NewRequirement(internalv1alpha1.LabelPolicy, selection.Exists, nil)
	utilruntime.Must(err)
	return labels.NewSelector().Add(*ours)
}

// Objects returns an empty object of each type of validating policy and binding.
func Objects() []client.Object {
	return []client.Object{
		&admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{},
	}
}

func (i *installed) addMutating(ctx context.Context, reader client.Reader) error {
	var mutating admissionv1.MutatingAdmissionPolicyList
	var bindings admissionv1.MutatingAdmissionPolicyBindingList
	if err := listPolicies(ctx, reader, client.HasLabels{internalv1alpha1.LabelPolicy}, &mutating, &bindings); err != nil {
		return err
	}
	for k := range mutating.Items {
		policy := &mutating.Items[k]
		i.add(mutatingKind, policy)
		if policy.Labels[internalv1alpha1.LabelPolicy] == internalv1alpha1.PolicyInject {
			i.inject = policy
		}
	}
	for k := range bindings.Items {
		bound := &bindings.Items[k]
		i.bind(mutatingKind, bound.Spec.PolicyName, binding{name: bound.Name})
		if i.inject != nil && bound.Spec.PolicyName == i.inject.Name {
			i.injectBinding = bound
		}
	}
	return nil
}

func list(ctx context.Context, reader client.Reader) (installed, error) {
	var validating admissionv1.ValidatingAdmissionPolicyList
	var bindings admissionv1.ValidatingAdmissionPolicyBindingList
	labeled := client.HasLabels{internalv1alpha1.LabelPolicy}
	if err := listPolicies(ctx, reader, labeled, &validating, &bindings); err != nil {
		return installed{}, err
	}
	found := installed{
		names: map[policy][]string{}, bindings: map[[2]string][]binding{},
		validating: map[string][]*admissionv1.ValidatingAdmissionPolicy{},
	}
	for i := range validating.Items {
		policy := &validating.Items[i]
		label := policy.Labels[internalv1alpha1.LabelPolicy]
		found.add(validatingKind, policy)
		found.validating[label] = append(found.validating[label], policy)
	}
	for i := range bindings.Items {
		spec := &bindings.Items[i].Spec
		found.bind(validatingKind, spec.PolicyName, binding{
			name: bindings.Items[i].Name, isAudited: !slices.Contains(spec.ValidationActions, admissionv1.Deny),
		})
	}
	return found, nil
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

func (i *installed) add(kind string, object client.Object) {
	key := policy{kind: kind, label: object.GetLabels()[internalv1alpha1.LabelPolicy]}
	i.names[key] = append(i.names[key], object.GetName())
}

func (i *installed) bind(kind, policy string, bound binding) {
	key := [2]string{kind, policy}
	i.bindings[key] = append(i.bindings[key], bound)
}

// audited returns the names of the bindings of the gate that admit early writes, sorted, and whether no binding denies
// them.
func (i *installed) audited() (names []string, areAll bool) {
	areAll = true
	for _, name := range i.names[policy{kind: validatingKind, label: internalv1alpha1.PolicyGate}] {
		for _, bound := range i.bindings[[2]string{validatingKind, name}] {
			areAll = areAll && bound.isAudited
			if bound.isAudited {
				names = append(names, bound.name)
			}
		}
	}
	slices.Sort(names)
	return names, areAll && len(names) > 0
}

// mutating returns the policies in config/mutating.
func mutating() []policy {
	return []policy{
		{kind: mutatingKind, label: internalv1alpha1.PolicyInject},
		{kind: mutatingKind, label: internalv1alpha1.PolicyComplete},
		{kind: mutatingKind, label: internalv1alpha1.PolicyRequireSet},
	}
}

// installedFirst returns the policies in config/admission without which the operator applies no policies: an
// administrator might be removing all of them.
func installedFirst() []policy {
	return []policy{
		{kind: validatingKind, label: internalv1alpha1.PolicyGate},
		{kind: validatingKind, label: internalv1alpha1.PolicyGuard},
	}
}

// protecting returns the policies that protect the state of an initialization.
func protecting() []policy {
	return append(installedFirst(),
		policy{kind: validatingKind, label: internalv1alpha1.PolicyWaitingSubjects},
		policy{kind: validatingKind, label: internalv1alpha1.PolicyInitializerSubjects})
}

// forTemplates returns the policies for NamespaceTemplates. Initializers do not depend on them.
func forTemplates() []policy {
	return []policy{
		{kind: validatingKind, label: internalv1alpha1.PolicyTemplates},
		{kind: validatingKind, label: internalv1alpha1.PolicyTemplateAuthors},
		{kind: validatingKind, label: internalv1alpha1.PolicyTemplateObjects},
	}
}

// forConfinement returns the policy for users who confine ServiceAccounts.
func forConfinement() []policy {
	return []policy{{kind: validatingKind, label: internalv1alpha1.PolicyInitializerAuthors}}
}

// forOperator returns the policy that limits the operator itself. Nothing else depends on it.
func forOperator() []policy {
	return []policy{{kind: validatingKind, label: internalv1alpha1.PolicyConfine}}
}

// MissingLimits describes what the API server lacks of the policy that limits the operator itself.
func MissingLimits(ctx context.Context, reader client.Reader) (string, error) {
	found, err := list(ctx, reader)
	if missing := found.missing(forOperator()); err == nil && len(missing) > 0 {
		return msgUnlimited(missing), nil
	}
	return "", err
}

// warning returns the end of a message about missing policies for the templates and the confined subjects in the set,
// and for the operator, or "" if there are none.
func (i installed) warning(set *internalv1alpha1.NamespaceInitializerSet) string {
	warning := ""
	if missing := i.missing(forTemplates()); len(set.Templates) > 0 && len(missing) > 0 {
		warning += msgTemplatesUnprotected(missing)
	}
	isConfining := len(confinement.Compute(set.Initializers, set.SystemNamespace)) > 0
	if missing := i.missing(forConfinement()); isConfining && len(missing) > 0 {
		warning += msgConfinementUnprotected(missing)
	}
	if missing := i.missing(forOperator()); len(missing) > 0 {
		warning += "; " + msgUnlimited(missing)
	}
	return warning
}

// failingOpen returns the policies that can admit requests while an API server cannot read the set, although the
// set contains what they enforce.
func (i installed) failingOpen(set *internalv1alpha1.NamespaceInitializerSet) []client.Object {
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
func enforcing(set *internalv1alpha1.NamespaceInitializerSet) []string {
	var enforced []string
	if len(set.Templates) > 0 {
		enforced = append(enforced, internalv1alpha1.PolicyTemplates)
	}
	if len(set.WaitingSubjects) > 0 {
		enforced = append(enforced, internalv1alpha1.PolicyWaitingSubjects)
	}
	if len(set.WaitingSubjects) > 0 || slices.ContainsFunc(set.Initializers,
		func(initializer internalv1alpha1.EffectiveInitializer) bool { return len(initializer.Subjects) > 0 }) {
		enforced = append(enforced, internalv1alpha1.PolicyInitializerSubjects)
	}
	return enforced
}

// gate returns the gate policy. The caller has verified that it exists.
func (i installed) gate() *admissionv1.ValidatingAdmissionPolicy {
	return i.validating[internalv1alpha1.PolicyGate][0]
}

// missing describes the policies and bindings that are not installed.
func (i installed) missing(required []policy) []string {
	var missing []string
	_, isAudited := i.audited()
	for _, policy := range required {
		bindings, isUnbound := 0, false
		for _, name := range i.names[policy] {
			bound := i.bindings[[2]string{policy.kind, name}]
			bindings += len(bound)
			isUnbound = isUnbound || len(bound) == 0
			for _, binding := range bound {
				if binding.isAudited && !policy.mayBeAudited(isAudited) {
					missing = append(missing, fmt.Sprintf("validationActions Deny in %sBinding %q", policy.kind, binding.name))
				}
			}
		}
		switch {
		case len(i.names[policy]) == 0:
			missing = append(missing, fmt.Sprintf("%s %q", policy.kind, policy.label))
		case isUnbound || bindings < policy.requiredBindings():
			missing = append(missing, fmt.Sprintf("a %sBinding for %q", policy.kind, policy.label))
		}
	}
	return missing
}
