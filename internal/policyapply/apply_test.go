// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package policyapply

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nslifecycle/nslifecycle/internal/scheme"
)

var errOutage = errors.New("the API server is unavailable")

var gate = &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "gate", UID: "gate-uid"}}

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
	apply := func() bool {
		result, err := Apply(ctx, api, api, gate, Decode([]byte(manifest)))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(result.IsForbidden).To(BeFalse())
		return result.HasApplied
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

func TestApplyFails(t *testing.T) {
	for name, test := range map[string]struct {
		err, want   error
		isForbidden bool
	}{
		"an administrator applies the policies": {
			err: apierrors.NewForbidden(schema.GroupResource{}, "subjects", errors.New("RBAC")), isForbidden: true,
		},
		"the API server is unavailable": {err: errOutage, want: errOutage},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			api := fake.NewClientBuilder().WithScheme(scheme.New()).WithInterceptorFuncs(interceptor.Funcs{
				Apply: func(
					ctx context.Context, api client.WithWatch, object runtime.ApplyConfiguration, options ...client.ApplyOption,
				) error {
					if object.(interface{ GetKind() string }).GetKind() == "ValidatingAdmissionPolicy" {
						return test.err
					}
					return api.Apply(ctx, object, options...)
				},
			}).Build()
			result, err := Apply(t.Context(), api, api, gate, Decode([]byte(manifest)))
			g.Expect(result).To(Equal(Result{HasApplied: true, IsForbidden: test.isForbidden}), "the binding is applied")
			g.Expect(errors.Is(err, test.want)).To(BeTrue(), "%v", err)
		})
	}
}

func TestApplyWithStaleCache(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	api := fake.NewClientBuilder().WithScheme(scheme.New()).Build()
	_, err := Apply(ctx, api, api, gate, Decode([]byte(manifest)))
	g.Expect(err).NotTo(HaveOccurred())
	policy := &admissionv1.ValidatingAdmissionPolicy{}
	g.Expect(api.Get(ctx, client.ObjectKey{Name: "subjects"}, policy)).To(Succeed())
	policy.Labels = nil
	stale := fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(policy.DeepCopy()).Build()
	policy.Spec.FailurePolicy = ptr.To(admissionv1.Fail)
	g.Expect(api.Update(ctx, policy)).To(Succeed())

	_, err = Apply(ctx, api, stale, gate, Decode([]byte(manifest))[:1])
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
