// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package policyverifier

import (
	"context"
	"errors"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/mutation"
	"github.com/nslifecycle/nslifecycle/test/framework/policytest"
)

func TestMissingPolicies(t *testing.T) {
	// The operator does not depend on the names of the policies.
	without := func(names ...string) []client.Object {
		return slices.DeleteFunc(policytest.Default(admissionv1.Fail), func(object client.Object) bool {
			return slices.Contains(names, object.GetName())
		})
	}
	tests := map[string]struct {
		installed []client.Object
		want      []string
	}{
		"all policies are installed": {installed: without()},
		"no policies are installed": {
			want: []string{
				`MutatingAdmissionPolicy "inject"`, `MutatingAdmissionPolicy "complete"`,
				`MutatingAdmissionPolicy "require-set"`,
				`ValidatingAdmissionPolicy "gate"`, `ValidatingAdmissionPolicy "guard"`,
				`ValidatingAdmissionPolicy "waiting-subjects"`, `ValidatingAdmissionPolicy "initializer-subjects"`,
			},
		},
		"a policy is missing, but not its binding": {
			installed: without("nslifecycle-gate"),
			want:      []string{`ValidatingAdmissionPolicy "gate"`},
		},
		"one of two policies with the same label, and its binding, are missing": {
			installed: without("nslifecycle-waiting-subjects-resources-named-namespaces", "waiting-resources-binding"),
			want:      []string{`a ValidatingAdmissionPolicyBinding for "waiting-subjects"`},
		},
		"both bindings refer to one of two policies with the same label": {
			installed: append(without("waiting-resources-binding"), policytest.ValidatingBinding(
				"waiting-resources-binding", internalv1alpha1.PolicyWaitingSubjects, "nslifecycle-waiting-subjects")),
			want: []string{`a ValidatingAdmissionPolicyBinding for "waiting-subjects"`},
		},
		"an earlier version with one policy and two bindings": {
			installed: append(without("waiting-resources-binding", "nslifecycle-waiting-subjects-resources-named-namespaces"),
				policytest.ValidatingBinding("waiting-resources-binding", internalv1alpha1.PolicyWaitingSubjects, "nslifecycle-waiting-subjects")),
		},
		"bindings are missing": {
			installed: without("inject-binding", "guard-binding"),
			want: []string{
				`a MutatingAdmissionPolicyBinding for "inject"`, `a ValidatingAdmissionPolicyBinding for "guard"`,
			},
		},
		"a binding refers to another policy": {
			installed: append(without("gate-binding"), policytest.ValidatingBinding("gate-binding", internalv1alpha1.PolicyGate, "elsewhere")),
			want:      []string{`a ValidatingAdmissionPolicyBinding for "gate"`},
		},
		"the label of a binding is ignored": {
			installed: append(without("gate-binding"), policytest.ValidatingBinding("other", "whatever", "nslifecycle-gate")),
		},
		"a binding of the gate only warns": {
			installed: append(without("gate-binding"), audited("gate-binding", internalv1alpha1.PolicyGate)),
		},
		"a binding of a policy that protects state only warns": {
			installed: append(without("guard-binding"), audited("guard-binding", internalv1alpha1.PolicyGuard)),
			want:      []string{`validationActions Deny in ValidatingAdmissionPolicyBinding "guard-binding"`},
		},
		"a policy of the wrong kind": {
			installed: append(without("nslifecycle-inject", "inject-binding"),
				policytest.ValidatingPolicy("impostor", internalv1alpha1.PolicyInject),
				policytest.ValidatingBinding("impostor-binding", internalv1alpha1.PolicyInject, "impostor")),
			want: []string{`MutatingAdmissionPolicy "inject"`},
		},
		"a binding for a policy of the wrong kind": {
			installed: append(without("inject-binding"),
				policytest.ValidatingPolicy("impostor", internalv1alpha1.PolicyInject),
				policytest.ValidatingBinding("impostor-binding", internalv1alpha1.PolicyInject, "impostor")),
			want: []string{`a MutatingAdmissionPolicyBinding for "inject"`},
		},
		"a binding of the wrong kind for a policy with the same name": {
			installed: append(without("gate-binding"),
				policytest.MutatingBinding("gate-binding", internalv1alpha1.PolicyGate, "nslifecycle-gate")),
			want: []string{`a ValidatingAdmissionPolicyBinding for "gate"`},
		},
		"policies of other projects": {
			installed: append(without(), &admissionv1.ValidatingAdmissionPolicy{
				ObjectMeta: metav1.ObjectMeta{Name: "other-project"},
			}, policytest.ValidatingBinding("dangling", "unknown", "nowhere")),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			verifier := newVerifier(interceptor.Funcs{}, test.installed...)
			found, err := list(t.Context(), verifier.Client)
			g.Expect(err).NotTo(HaveOccurred())
			_, err = verifier.ensureInjection(t.Context(), policytest.Set(), &found)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(found.missingWith(mutation.State{ServesPolicies: true})).To(Equal(test.want))
			if len(test.want) == 0 {
				g.Expect(found.inject.Name).To(Equal("nslifecycle-inject"))
				g.Expect(found.injectBinding.Name).To(Equal("inject-binding"))
			}
		})
	}
}

func TestApplyPolicies(t *testing.T) {
	fromManifests := func() []client.Object {
		return []client.Object{
			policytest.ValidatingPolicy("prefix-gate", internalv1alpha1.PolicyGate),
			policytest.ValidatingBinding("gate", internalv1alpha1.PolicyGate, "prefix-gate"),
			policytest.ValidatingBinding("gate-resources", internalv1alpha1.PolicyGate, "prefix-gate"),
			policytest.ValidatingPolicy("prefix-guard", internalv1alpha1.PolicyGuard),
			policytest.ValidatingBinding("guard", internalv1alpha1.PolicyGuard, "prefix-guard"),
		}
	}
	all := append(protecting(), policy{kind: validatingKind, label: internalv1alpha1.PolicyTemplates})
	for name, test := range map[string]struct {
		installed   []client.Object
		wantMissing int
	}{
		"applied with the manifests":            {installed: fromManifests()},
		"an administrator removes the policies": {installed: policytest.Without(fromManifests(), "gate"), wantMissing: 4},
		"nothing is installed":                  {wantMissing: 5},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			verifier := newVerifier(interceptor.Funcs{}, test.installed...)
			found, err := list(t.Context(), verifier.Client)
			g.Expect(err).NotTo(HaveOccurred())
			found, isForbidden, err := verifier.applyPolicies(t.Context(), found)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(isForbidden).To(BeFalse())
			g.Expect(found.missing(all)).To(HaveLen(test.wantMissing))
			for _, label := range []string{
				internalv1alpha1.PolicyWaitingSubjects, internalv1alpha1.PolicyInitializerSubjects, internalv1alpha1.PolicyTemplates,
			} {
				for _, policy := range found.validating[label] {
					g.Expect(policy.Spec.FailurePolicy).To(HaveValue(Equal(admissionv1.Ignore)))
					g.Expect(policy.OwnerReferences).To(ConsistOf(HaveField("Name", "prefix-gate")))
				}
			}
		})
	}
}

func TestApplyPoliciesPreservesFailurePolicyWithoutLabel(t *testing.T) {
	g := NewWithT(t)
	unlabeled := policytest.ValidatingPolicy("nslifecycle-templates", internalv1alpha1.PolicyTemplates)
	unlabeled.Labels, unlabeled.Spec.FailurePolicy = nil, new(admissionv1.Fail)
	installed := append(policytest.Without(policytest.Default(admissionv1.Fail), "nslifecycle-templates"), unlabeled)
	verifier := newVerifier(interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
			return apierrors.NewNotFound(admissionv1.Resource("validatingadmissionpolicies"), key.Name)
		},
	}, installed...)
	verifier.Live = policytest.NewClient(interceptor.Funcs{}, installed...)
	found, err := list(t.Context(), verifier.Client)
	g.Expect(err).NotTo(HaveOccurred())
	_, _, err = verifier.applyPolicies(t.Context(), found)
	g.Expect(err).NotTo(HaveOccurred())
	found, err = list(t.Context(), verifier.Client)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found.validating[internalv1alpha1.PolicyTemplates]).To(ConsistOf(
		HaveField("Spec.FailurePolicy", HaveValue(Equal(admissionv1.Fail)))))
}

// The gate is enforced, so the policy that follows it must be, too.
func TestWaitingSubjectsAuditedAlone(t *testing.T) {
	g := NewWithT(t)
	const label = internalv1alpha1.PolicyWaitingSubjects
	verifier := newVerifier(interceptor.Funcs{}, append(policytest.Default(admissionv1.Fail), audited("audited", label))...)
	found, err := list(t.Context(), verifier.Client)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found.missing(protecting())).To(ConsistOf(
		`validationActions Deny in ValidatingAdmissionPolicyBinding "audited"`))
}

// audited returns a binding that admits what its policy does not allow.
func audited(name, label string) *admissionv1.ValidatingAdmissionPolicyBinding {
	binding := policytest.ValidatingBinding(name, label, "nslifecycle-"+label)
	binding.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn, admissionv1.Audit}
	return binding
}

func TestAuditMode(t *testing.T) {
	isGate := func(object client.Object) bool {
		_, isBinding := object.(*admissionv1.ValidatingAdmissionPolicyBinding)
		label := object.GetLabels()[internalv1alpha1.LabelPolicy]
		return isBinding && (label == internalv1alpha1.PolicyGate || label == internalv1alpha1.PolicyWaitingSubjects)
	}
	for name, test := range map[string]struct {
		audits      func(client.Object) bool
		wantReason  string
		wantAudited bool
	}{
		"no binding": {
			func(client.Object) bool { return false }, v1alpha1.ReasonEnforced, false,
		},
		"all bindings of the gate": {isGate, v1alpha1.ReasonAuditMode, true},
		"one binding of the gate": {
			func(object client.Object) bool { return object.GetName() == "gate-binding" },
			v1alpha1.ReasonAuditMode, false,
		},
		"the binding of guard": {
			func(object client.Object) bool { return isGate(object) || object.GetName() == "guard-binding" },
			v1alpha1.ReasonPolicyMissing, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			objects := policytest.Default(admissionv1.Fail)
			for _, object := range objects {
				if binding, ok := object.(*admissionv1.ValidatingAdmissionPolicyBinding); ok && test.audits(object) {
					binding.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn}
				}
			}
			server := policytest.DryRuns{Responses: []policytest.DryRun{{Pending: "rbac.corp.com,quota.corp.com"}}}
			status, err := newVerifier(interceptor.Funcs{Create: server.Create}, objects...).Verify(
				t.Context(), policytest.Set("rbac.corp.com", "quota.corp.com"))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(status.Reason).To(Equal(test.wantReason), status.Message)
			g.Expect(status.IsAudited).To(Equal(test.wantAudited))
		})
	}
}

func TestPoliciesCannotBeListed(t *testing.T) {
	g := NewWithT(t)
	verifier := &Verifier{Client: policytest.NewClient(interceptor.Funcs{List: policytest.FailingList})}
	_, err := list(t.Context(), verifier.Client)
	g.Expect(err).To(MatchError("failed to list admission policies: " + errOutage.Error()))
	g.Expect(errors.Is(err, errOutage)).To(BeTrue())
}
