// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/admission/policies"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework/policytest"
)

// installed returns what a fake API server has, which serves MutatingAdmissionPolicy v1.
func installed(t *testing.T, objects ...client.Object) *Installed {
	t.Helper()
	g := NewWithT(t)
	api := policytest.NewClient(interceptor.Funcs{}, objects...)
	found, err := Read(t.Context(), api)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found.ReadMutating(t.Context(), api)).To(Succeed())
	found.ServesMutating = true
	return &found
}

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
			NewWithT(t).Expect(installed(t, test.installed...).missingForState()).To(Equal(test.want))
		})
	}
}

func TestProtectionCondition(t *testing.T) {
	policy := policytest.ValidatingPolicy("some-protection", internalv1alpha1.PolicyProtection)
	policy.Spec.MatchConstraints = &admissionv1.MatchResources{}
	binding := policytest.ValidatingBinding("some-protection", internalv1alpha1.PolicyProtection, policy.Name)
	for name, test := range map[string]struct {
		objects    []client.Object
		want       metav1.ConditionStatus
		wantReason string
	}{
		"the default installation": {policytest.Default(admissionv1.Fail), metav1.ConditionFalse, v1alpha1.ReasonPolicyMissing},
		"without the binding":      {[]client.Object{policy}, metav1.ConditionFalse, v1alpha1.ReasonPolicyMissing},
		"the policy":               {[]client.Object{policy, binding}, metav1.ConditionTrue, v1alpha1.ReasonEnforced},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			condition := installed(t, test.objects...).ProtectionCondition()
			g.Expect(condition.Type).To(Equal(internalv1alpha1.ConditionDeletionProtectionEnforced))
			g.Expect(condition.Status).To(Equal(test.want))
			g.Expect(condition.Reason).To(Equal(test.wantReason))
		})
	}
}

// The gate is enforced, so the policy that follows it must be, too.
func TestWaitingSubjectsAuditedAlone(t *testing.T) {
	g := NewWithT(t)
	const label = internalv1alpha1.PolicyWaitingSubjects
	found := installed(t, append(policytest.Default(admissionv1.Fail), audited("audited", label))...)
	g.Expect(found.Missing(policies.Protecting())).To(ConsistOf(
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
			status, err := newVerifier(server.Create).Verify(
				t.Context(), policytest.Set("rbac.corp.com", "quota.corp.com"), installed(t, objects...))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(status.Reason).To(Equal(test.wantReason), status.Message)
			g.Expect(status.IsAudited).To(Equal(test.wantAudited))
		})
	}
}

func TestReadFails(t *testing.T) {
	g := NewWithT(t)
	api := policytest.NewClient(interceptor.Funcs{List: policytest.FailingList})
	_, err := Read(t.Context(), api)
	g.Expect(err).To(MatchError("failed to list admission policies: " + errOutage.Error()))
	g.Expect((&Installed{}).ReadMutating(t.Context(), api)).To(MatchError(errOutage))
}
