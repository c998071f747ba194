// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"bytes"
	"os"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
)

// read returns the policy and the binding in config.
func read(t *testing.T) (*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding) {
	content, err := os.ReadFile("../../../config/protection/protection.yaml")
	if err != nil {
		t.Fatal(err)
	}
	policy, binding := &admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{}
	for i, object := range []any{policy, binding} {
		if err := yaml.UnmarshalStrict(bytes.Split(content, []byte("\n---\n"))[i], object); err != nil {
			t.Fatal(err)
		}
	}
	return policy, binding
}

func TestIsProtectionEnforced(t *testing.T) {
	type (
		policy  = admissionv1.ValidatingAdmissionPolicy
		binding = admissionv1.ValidatingAdmissionPolicyBinding
	)
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	for name, test := range map[string]struct {
		change func(*policy, *binding)
		want   bool
	}{
		"as in config":       {func(*policy, *binding) {}, true},
		"all defaults":       {func(p *policy, _ *binding) { p.Spec.FailurePolicy = nil }, true},
		"other names":        {func(p *policy, b *binding) { p.Name, b.Spec.PolicyName = "my-rule", "my-rule" }, true},
		"fails open":         {func(p *policy, _ *binding) { p.Spec.FailurePolicy = new(admissionv1.Ignore) }, false},
		"matches nothing":    {func(p *policy, _ *binding) { p.Spec.MatchConstraints = nil }, false},
		"namespaceSelector":  {func(p *policy, _ *binding) { p.Spec.MatchConstraints.NamespaceSelector = selector }, false},
		"objectSelector":     {func(p *policy, _ *binding) { p.Spec.MatchConstraints.ObjectSelector = selector }, false},
		"no object selector": {func(p *policy, _ *binding) { p.Spec.MatchConstraints.ObjectSelector = nil }, true},
		"excluded resources": {func(p *policy, _ *binding) {
			p.Spec.MatchConstraints.ExcludeResourceRules = []admissionv1.NamedRuleWithOperations{{ResourceNames: []string{"shop"}}}
		}, false},
		"additional match condition": {func(p *policy, _ *binding) {
			p.Spec.MatchConditions = append(p.Spec.MatchConditions, admissionv1.MatchCondition{Name: "not-ours"})
		}, false},
		"parameters":       {func(p *policy, _ *binding) { p.Spec.ParamKind = &admissionv1.ParamKind{Kind: "ConfigMap"} }, false},
		"another policy":   {func(p *policy, _ *binding) { p.Labels[internalv1alpha1.LabelPolicy] = internalv1alpha1.PolicyGuard }, false},
		"another policy's": {func(_ *policy, b *binding) { b.Spec.PolicyName = "other" }, false},
		"only warns": {func(_ *policy, b *binding) {
			b.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn, admissionv1.Audit}
		}, false},
		"binding with selectors": {func(_ *policy, b *binding) {
			b.Spec.MatchResources = &admissionv1.MatchResources{ObjectSelector: selector}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p, b := read(t)
			test.change(p, b)
			g.Expect(IsProtectionEnforced([]policy{*p}, []binding{*b})).To(Equal(test.want))
			g.Expect(IsProtectionEnforced([]policy{*p}, nil)).To(BeFalse())
			g.Expect(IsProtectionEnforced(nil, []binding{*b})).To(BeFalse())
		})
	}
}
