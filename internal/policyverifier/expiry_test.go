// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package policyverifier

import (
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/policyverifier/policytest"
)

func TestIsExpiryEnforced(t *testing.T) {
	changed := func(change func(*admissionv1.ValidatingAdmissionPolicy)) *admissionv1.ValidatingAdmissionPolicy {
		policy := policytest.ExpiryPolicy()
		change(policy)
		return policy
	}
	changedBinding := func(change func(*admissionv1.ValidatingAdmissionPolicyBinding)) *admissionv1.ValidatingAdmissionPolicyBinding {
		binding := policytest.ExpiryBinding()
		change(binding)
		return binding
	}
	tests := map[string]struct {
		objects []client.Object
		want    bool
	}{
		"none":                          {},
		"both":                          {objects: []client.Object{policytest.ExpiryPolicy(), policytest.ExpiryBinding()}, want: true},
		"no binding":                    {objects: []client.Object{policytest.ExpiryPolicy()}},
		"no policy":                     {objects: []client.Object{policytest.ExpiryBinding()}},
		"a policy that fails closed":    {objects: []client.Object{changed(func(p *admissionv1.ValidatingAdmissionPolicy) { p.Spec.FailurePolicy = new(admissionv1.Fail) }), policytest.ExpiryBinding()}, want: true},
		"a policy that fails open":      {objects: []client.Object{changed(func(p *admissionv1.ValidatingAdmissionPolicy) { p.Spec.FailurePolicy = new(admissionv1.Ignore) }), policytest.ExpiryBinding()}},
		"a policy that matches nothing": {objects: []client.Object{changed(func(p *admissionv1.ValidatingAdmissionPolicy) { p.Spec.MatchConstraints = nil }), policytest.ExpiryBinding()}},
		"a policy with a namespaceSelector": {objects: []client.Object{changed(func(p *admissionv1.ValidatingAdmissionPolicy) {
			p.Spec.MatchConstraints.NamespaceSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpDoesNotExist}}
		}), policytest.ExpiryBinding()}},
		"a policy with an objectSelector": {objects: []client.Object{changed(func(p *admissionv1.ValidatingAdmissionPolicy) {
			p.Spec.MatchConstraints.ObjectSelector.MatchLabels = map[string]string{"a": "b"}
		}), policytest.ExpiryBinding()}},
		"a policy with excluded resources": {objects: []client.Object{changed(func(p *admissionv1.ValidatingAdmissionPolicy) {
			p.Spec.MatchConstraints.ExcludeResourceRules = []admissionv1.NamedRuleWithOperations{{ResourceNames: []string{"shop"}}}
		}), policytest.ExpiryBinding()}},
		"a policy with an additional match condition": {objects: []client.Object{changed(func(p *admissionv1.ValidatingAdmissionPolicy) {
			p.Spec.MatchConditions = append(p.Spec.MatchConditions, admissionv1.MatchCondition{Name: "not-ours"})
		}), policytest.ExpiryBinding()}},
		"a policy with parameters": {objects: []client.Object{changed(func(p *admissionv1.ValidatingAdmissionPolicy) {
			p.Spec.ParamKind = &admissionv1.ParamKind{Kind: "ConfigMap"}
		}), policytest.ExpiryBinding()}},
		"another policy": {objects: []client.Object{changed(func(p *admissionv1.ValidatingAdmissionPolicy) { p.Labels[v1alpha1.LabelPolicy] = v1alpha1.PolicyGuard }), policytest.ExpiryBinding()}},
		"a binding for another policy": {objects: []client.Object{policytest.ExpiryPolicy(), changedBinding(func(b *admissionv1.ValidatingAdmissionPolicyBinding) {
			b.Spec.PolicyName = "other"
		})}},
		"a binding that only warns": {objects: []client.Object{policytest.ExpiryPolicy(), changedBinding(func(b *admissionv1.ValidatingAdmissionPolicyBinding) {
			b.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn, admissionv1.Audit}
		})}},
		"a binding with a namespaceSelector": {objects: []client.Object{policytest.ExpiryPolicy(), changedBinding(func(b *admissionv1.ValidatingAdmissionPolicyBinding) {
			b.Spec.MatchResources = &admissionv1.MatchResources{ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}
		})}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			enforced, err := IsExpiryEnforced(t.Context(), policytest.NewClient(interceptor.Funcs{}, test.objects...))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(enforced).To(Equal(test.want))
		})
	}
}
