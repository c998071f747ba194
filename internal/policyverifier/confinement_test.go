// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package policyverifier

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/confinement"
	"github.com/nslifecycle/nslifecycle/internal/policyverifier/policytest"
)

func TestEnsureConfinement(t *testing.T) {
	confined := func() *v1alpha1.NamespaceInitializerSet {
		set := policytest.Set("a.corp.com")
		set.Initializers[0].Confinement = v1alpha1.ConfinementInitializingNamespaces
		set.Initializers[0].Subjects = []v1alpha1.Subject{{Kind: v1alpha1.SubjectUser, Name: "bot"}}
		return set
	}
	installed := func(change func(*admissionv1.ValidatingAdmissionPolicy)) []client.Object {
		policy, binding := confinement.Compute(confined().Initializers, "").Render()
		gate := policytest.ValidatingPolicy("nslifecycle-gate", v1alpha1.PolicyGate)
		owner := ownedBy(gate)
		policy.OwnerReferences, binding.OwnerReferences = owner, owner
		change(policy)
		return append(policytest.Default(admissionv1.Fail), policy, binding)
	}
	unchanged := func(*admissionv1.ValidatingAdmissionPolicy) {}
	forbidden := apierrors.NewForbidden(admissionv1.Resource("validatingadmissionpolicies"), confinement.Name, nil)
	tests := map[string]struct {
		objects     []client.Object
		set         *v1alpha1.NamespaceInitializerSet
		err         error
		wantWritten []string
		want        string
	}{
		"nothing to confine": {objects: policytest.Default(admissionv1.Fail), set: policytest.Set("a.corp.com")},
		"not installed": {
			objects: policytest.Default(admissionv1.Fail), set: confined(),
			wantWritten: []string{"apply ValidatingAdmissionPolicy", "apply ValidatingAdmissionPolicyBinding"},
		},
		"installed": {objects: installed(unchanged), set: confined()},
		"changed": {
			objects: installed(func(policy *admissionv1.ValidatingAdmissionPolicy) {
				policy.Spec.FailurePolicy = new(admissionv1.Ignore)
			}),
			set: confined(), wantWritten: []string{"patch application/json-patch+json"},
		},
		"with an additional match condition": {
			objects: installed(func(policy *admissionv1.ValidatingAdmissionPolicy) {
				policy.Spec.MatchConditions = append(policy.Spec.MatchConditions, admissionv1.MatchCondition{Name: "never", Expression: "false"})
			}),
			set: confined(), wantWritten: []string{"patch application/json-patch+json"},
		},
		"the gate policy was recreated": {
			objects: installed(func(policy *admissionv1.ValidatingAdmissionPolicy) { policy.OwnerReferences = nil }),
			set:     confined(), wantWritten: []string{"patch application/json-patch+json"},
		},
		"while the policies are removed": {
			objects: policytest.Without(policytest.Default(admissionv1.Fail), "nslifecycle-gate"), set: confined(),
		},
		"no longer confined": {
			objects: installed(unchanged), set: policytest.Set("a.corp.com"), wantWritten: []string{"delete", "delete"},
		},
		"not authorized to apply": {
			objects: policytest.Default(admissionv1.Fail), set: confined(), err: forbidden, want: msgNotConfined(1),
		},
		"not authorized to delete": {
			objects: installed(unchanged), set: policytest.Set("a.corp.com"), err: forbidden, want: msgNotConfined(0),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var written []string
			verifier := newVerifier(interceptor.Funcs{
				Apply: func(_ context.Context, _ client.WithWatch, object runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
					if test.err == nil {
						written = append(written, "apply "+object.(interface{ GetKind() string }).GetKind())
					}
					return test.err
				},
				Patch: func(_ context.Context, _ client.WithWatch, _ client.Object, patch client.Patch, _ ...client.PatchOption) error {
					written = append(written, "patch "+string(patch.Type()))
					return test.err
				},
				Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
					if test.err == nil {
						written = append(written, "delete")
					}
					return test.err
				},
			}, test.objects...)
			found, err := list(t.Context(), verifier)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(verifier.ensureConfinement(t.Context(), test.set, found)).To(Equal(test.want))
			g.Expect(written).To(Equal(test.wantWritten))
		})
	}
}
