// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
)

func entry(name string, confinement v1alpha1.InitializerConfinement, subjects ...v1alpha1.Subject) internalv1alpha1.EffectiveInitializer {
	return internalv1alpha1.EffectiveInitializer{Name: name, InitializerSettings: v1alpha1.InitializerSettings{
		Confinement: confinement, Subjects: subjects,
	}}
}

func TestComputeConfined(t *testing.T) {
	const none, confined = v1alpha1.ConfinementNone, v1alpha1.ConfinementInitializingNamespaces
	user := v1alpha1.Subject{Kind: v1alpha1.SubjectUser, Name: "bot"}
	account := v1alpha1.Subject{Kind: v1alpha1.SubjectServiceAccount, Namespace: "corp", Name: "bot"}
	sameAccount := v1alpha1.Subject{Kind: v1alpha1.SubjectUser, Name: "system:serviceaccount:corp:bot"}
	group := v1alpha1.Subject{Kind: v1alpha1.SubjectGroup, Name: "bot"}
	tests := map[string]struct {
		initializers []internalv1alpha1.EffectiveInitializer
		want         ConfinedSubjects
	}{
		"none":              {want: ConfinedSubjects{}},
		"without a setting": {initializers: []internalv1alpha1.EffectiveInitializer{entry("a", "", account), entry("b", none, account)}, want: ConfinedSubjects{}},
		"users and groups, which an earlier version could confine": {
			initializers: []internalv1alpha1.EffectiveInitializer{entry("a", confined, user, sameAccount, group)}, want: ConfinedSubjects{},
		},
		"several initializers, and only the last one has a confinement": {
			initializers: []internalv1alpha1.EffectiveInitializer{entry("c", none, account), entry("a", "", account), entry("b", confined, account)},
			want:         ConfinedSubjects{"system:serviceaccount:corp:bot": {"a", "b", "c"}},
		},
		"one ServiceAccount, specified in two ways": {
			initializers: []internalv1alpha1.EffectiveInitializer{entry("a", confined, account), entry("b", none, sameAccount, account)},
			want:         ConfinedSubjects{"system:serviceaccount:corp:bot": {"a", "b"}},
		},
		"the operator and a component of Kubernetes": {
			initializers: []internalv1alpha1.EffectiveInitializer{entry("a", confined,
				v1alpha1.Subject{Kind: v1alpha1.SubjectServiceAccount, Namespace: "nslifecycle-system", Name: "nslifecycle-admission"},
				v1alpha1.Subject{Kind: v1alpha1.SubjectServiceAccount, Namespace: "kube-system", Name: "generic-garbage-collector"},
				v1alpha1.Subject{Kind: v1alpha1.SubjectServiceAccount, Namespace: "nslifecycle-system2", Name: "bot"})},
			want: ConfinedSubjects{"system:serviceaccount:nslifecycle-system2:bot": {"a"}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(ComputeConfined(test.initializers, "nslifecycle-system")).To(Equal(test.want))
		})
	}
}

func TestRender(t *testing.T) {
	g := NewWithT(t)
	objects := ConfinedSubjects{"b": {"x.y.z"}, "a\"'\\\n\u00e9": {"x.y.z", "u.v.w"}}.Render()
	policy, binding := &admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{}
	for i, object := range []any{policy, binding} {
		g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(objects[i].Object, object, true)).To(Succeed())
	}
	g.Expect(policy.Name).To(Equal(ConfinedName))
	g.Expect(policy.Labels).To(HaveKeyWithValue(internalv1alpha1.LabelPolicy, internalv1alpha1.PolicyConfinedInitializers))
	g.Expect(binding.Spec.PolicyName).To(Equal(ConfinedName))
	g.Expect(policy.Spec.MatchConditions).To(HaveLen(1))
	g.Expect(policy.Spec.MatchConditions[0].Expression).To(And(
		HavePrefix(`request.userInfo.username in ["a\"'\\\n\u00e9", "b"] && !authorizer`), ContainSubstring(`.name('`+ConfinedName+`')`)))
	g.Expect(policy.Spec.Variables[0].Name).To(Equal("initializers"))
	g.Expect(policy.Spec.Variables[0].Expression).To(Equal(
		`{"a\"'\\\n\u00e9": ["x.y.z", "u.v.w"], "b": ["x.y.z"]}[request.userInfo.username]`))
}
