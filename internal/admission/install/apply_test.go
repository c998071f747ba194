// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nslifecycle/nslifecycle/internal/admission/policies"
	"github.com/nslifecycle/nslifecycle/internal/scheme"
)

var gatePolicy = &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "gate", UID: "gate-uid"}}

const manifest = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: subjects
  labels: {nslifecycle.dev/policy: subjects}
spec:
  failurePolicy: Ignore
  paramKind: {apiVersion: example.com/v1, kind: Set}
  validations: [{expression: "true"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: subjects
spec:
  policyName: subjects
`

func TestApply(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	api := fake.NewClientBuilder().WithScheme(scheme.New()).Build()
	installer := &Installer{Client: api, Live: api}
	apply := func() bool {
		hasApplied, isForbidden, err := installer.apply(ctx, gatePolicy, policies.Decode([]byte(manifest)))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(isForbidden).To(BeFalse())
		return hasApplied
	}
	g.Expect(apply()).To(BeTrue())
	g.Expect(apply()).To(BeFalse(), "nothing has changed")
	policy := &admissionv1.ValidatingAdmissionPolicy{}
	g.Expect(api.Get(ctx, client.ObjectKey{Name: "subjects"}, policy)).To(Succeed())
	g.Expect(policy.OwnerReferences).To(ConsistOf(metav1.OwnerReference{
		APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingAdmissionPolicy", Name: "gate", UID: "gate-uid",
	}))

	// The failurePolicy is preserved, and everything else is reverted.
	policy.Spec.FailurePolicy = ptr.To(admissionv1.Fail)
	g.Expect(api.Update(ctx, policy)).To(Succeed())
	g.Expect(apply()).To(BeFalse())
	policy.Spec.Validations[0].Expression = "false"
	policy.Spec.MatchConditions = []admissionv1.MatchCondition{{Name: "added", Expression: "false"}}
	policy.Labels = nil
	g.Expect(api.Update(ctx, policy)).To(Succeed())
	g.Expect(apply()).To(BeTrue())
	g.Expect(api.Get(ctx, client.ObjectKey{Name: "subjects"}, policy)).To(Succeed())
	g.Expect(policy.Spec.FailurePolicy).To(HaveValue(Equal(admissionv1.Fail)))
	g.Expect(policy.Spec.Validations[0].Expression).To(Equal("true"))
	g.Expect(policy.Spec.MatchConditions).To(BeEmpty())
	g.Expect(policy.Labels).To(HaveLen(1))

	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "subjects"}}
	g.Expect(api.Delete(ctx, binding)).To(Succeed())
	g.Expect(apply()).To(BeTrue())
	g.Expect(api.Get(ctx, client.ObjectKeyFromObject(binding), binding)).To(Succeed())
}

func TestApplyWithStaleCache(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	api := fake.NewClientBuilder().WithScheme(scheme.New()).Build()
	_, _, err := (&Installer{Client: api, Live: api}).apply(ctx, gatePolicy, policies.Decode([]byte(manifest)))
	g.Expect(err).NotTo(HaveOccurred())
	policy := &admissionv1.ValidatingAdmissionPolicy{}
	g.Expect(api.Get(ctx, client.ObjectKey{Name: "subjects"}, policy)).To(Succeed())
	policy.Labels = nil
	stale := fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(policy.DeepCopy()).Build()
	policy.Spec.FailurePolicy = ptr.To(admissionv1.Fail)
	g.Expect(api.Update(ctx, policy)).To(Succeed())

	_, _, err = (&Installer{Client: api, Live: stale}).apply(ctx, gatePolicy, policies.Decode([]byte(manifest))[:1])
	g.Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
	g.Expect(api.Get(ctx, client.ObjectKey{Name: "subjects"}, policy)).To(Succeed())
	g.Expect(policy.Spec.FailurePolicy).To(HaveValue(Equal(admissionv1.Fail)))
}

func TestIsEqual(t *testing.T) {
	list := func(values ...any) any { return values }
	type object = map[string]any
	desired := object{"rules": list(object{"scope": "*"}), "failurePolicy": "Fail"}
	for name, test := range map[string]struct {
		live any
		want bool
	}{
		"equal":         {live: object{"rules": list(object{"scope": "*"}), "failurePolicy": "Fail"}, want: true},
		"with defaults": {live: object{"rules": list(object{"scope": "*"}), "failurePolicy": "Fail", "matchPolicy": "Equivalent", "namespaceSelector": object{}}, want: true},
		"another value": {live: object{"rules": list(object{"scope": "Namespaced"}), "failurePolicy": "Fail"}},
		"a selector":    {live: object{"rules": list(object{"scope": "*"}), "failurePolicy": "Fail", "objectSelector": object{"matchLabels": object{"a": "b"}}}},
		"another list":  {live: object{"rules": list(), "failurePolicy": "Fail"}},
		"a field less":  {live: object{"rules": list(object{"scope": "*"})}},
		"another type":  {live: list()},
		"nothing":       {},
	} {
		t.Run(name, func(t *testing.T) { NewWithT(t).Expect(isEqual(desired, test.live)).To(Equal(test.want)) })
	}
}
