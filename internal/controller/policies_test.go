// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/scheme"
)

func TestMissingPolicies(t *testing.T) {
	// Names as in config/default, where the operator does not look.
	without := func(gone ...string) []client.Object {
		return slices.DeleteFunc(installedWith(admissionv1.Fail), func(object client.Object) bool {
			return slices.Contains(gone, object.GetName())
		})
	}
	tests := map[string]struct {
		installed []client.Object
		want      []string
	}{
		"all are there": {installed: without()},
		"none is there": {
			want: []string{
				`MutatingAdmissionPolicy "inject"`, `MutatingAdmissionPolicy "complete"`,
				`ValidatingAdmissionPolicy "require-set"`,
				`ValidatingAdmissionPolicy "gate"`, `ValidatingAdmissionPolicy "guard"`,
			},
		},
		"a policy is missing, and its binding is of no use": {
			installed: without("nslifecycle-gate"),
			want:      []string{`ValidatingAdmissionPolicy "gate"`},
		},
		"bindings are missing": {
			installed: without("inject-binding", "guard-binding"),
			want: []string{
				`a MutatingAdmissionPolicyBinding for "inject"`, `a ValidatingAdmissionPolicyBinding for "guard"`,
			},
		},
		"a binding refers to another policy": {
			installed: append(without("gate-binding"), validatingBinding("gate-binding", v1alpha1.PolicyGate, "elsewhere")),
			want:      []string{`a ValidatingAdmissionPolicyBinding for "gate"`},
		},
		"the binding tells by its policy what it is for": {
			installed: append(without("gate-binding"), validatingBinding("other", "whatever", "nslifecycle-gate")),
		},
		"a policy of the wrong kind does not count": {
			installed: append(without("nslifecycle-inject", "inject-binding"),
				validatingPolicy("impostor", v1alpha1.PolicyInject),
				validatingBinding("impostor-binding", v1alpha1.PolicyInject, "impostor")),
			want: []string{`MutatingAdmissionPolicy "inject"`},
		},
		"nor does its binding": {
			installed: append(without("inject-binding"),
				validatingPolicy("impostor", v1alpha1.PolicyInject),
				validatingBinding("impostor-binding", v1alpha1.PolicyInject, "impostor")),
			want: []string{`a MutatingAdmissionPolicyBinding for "inject"`},
		},
		"a binding of the wrong kind does not count, even for a policy of the same name": {
			installed: append(without("gate-binding"),
				mutatingBinding("gate-binding", v1alpha1.PolicyGate, "nslifecycle-gate")),
			want: []string{`a ValidatingAdmissionPolicyBinding for "gate"`},
		},
		"somebody else's policies": {
			installed: append(without(), &admissionv1.ValidatingAdmissionPolicy{
				ObjectMeta: metav1.ObjectMeta{Name: "somebody-else"},
			}, validatingBinding("dangling", "unknown", "nowhere")),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			admission := &Admission{Client: newFakeClient(interceptor.Funcs{}, test.installed...)}
			installed, err := admission.policies(t.Context())
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(installed.missing(allPolicies())).To(Equal(test.want))
			if len(test.want) == 0 {
				g.Expect(installed.inject.Name).To(Equal("nslifecycle-inject"))
				g.Expect(installed.injectBinding.Name).To(Equal("inject-binding"))
			}
		})
	}
}

func TestPoliciesCannotBeListed(t *testing.T) {
	g := NewWithT(t)
	admission := &Admission{Client: newFakeClient(interceptor.Funcs{List: failingList})}
	_, err := admission.policies(t.Context())
	g.Expect(err).To(MatchError("listing the admission policies: " + errOutage.Error()))
	g.Expect(errors.Is(err, errOutage)).To(BeTrue())
}

// installedWith is what config/default installs, with the failure policy of inject.
func installedWith(failurePolicy admissionv1.FailurePolicyType) []client.Object {
	inject := mutatingPolicy("nslifecycle-inject", v1alpha1.PolicyInject)
	if failurePolicy != "" {
		inject.Spec.FailurePolicy = &failurePolicy
	}
	return []client.Object{
		inject,
		mutatingBinding("inject-binding", v1alpha1.PolicyInject, "nslifecycle-inject"),
		mutatingPolicy("nslifecycle-complete", v1alpha1.PolicyComplete),
		mutatingBinding("complete-binding", v1alpha1.PolicyComplete, "nslifecycle-complete"),
		validatingPolicy("nslifecycle-require-set", v1alpha1.PolicyRequireSet),
		validatingBinding("require-set-binding", v1alpha1.PolicyRequireSet, "nslifecycle-require-set"),
		validatingPolicy("nslifecycle-gate", v1alpha1.PolicyGate),
		validatingBinding("gate-binding", v1alpha1.PolicyGate, "nslifecycle-gate"),
		validatingBinding("gate-resources-binding", v1alpha1.PolicyGate, "nslifecycle-gate"),
		validatingPolicy("nslifecycle-guard", v1alpha1.PolicyGuard),
		validatingBinding("guard-binding", v1alpha1.PolicyGuard, "nslifecycle-guard"),
	}
}

func mutatingPolicy(name, label string) *admissionv1.MutatingAdmissionPolicy {
	return &admissionv1.MutatingAdmissionPolicy{ObjectMeta: policyMeta(name, label)}
}

func mutatingBinding(name, label, policyName string) *admissionv1.MutatingAdmissionPolicyBinding {
	return &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: policyMeta(name, label),
		Spec:       admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: policyName},
	}
}

func validatingPolicy(name, label string) *admissionv1.ValidatingAdmissionPolicy {
	return &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: policyMeta(name, label)}
}

func validatingBinding(name, label, policyName string) *admissionv1.ValidatingAdmissionPolicyBinding {
	return &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: policyMeta(name, label),
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: policyName},
	}
}

func policyMeta(name, label string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, UID: types.UID(name + "-uid"), Labels: map[string]string{v1alpha1.LabelPolicy: label},
	}
}

// newFakeClient holds some objects; what depends on the API server's own behaviour is
// intercepted.
func newFakeClient(funcs interceptor.Funcs, objects ...client.Object) client.Client {
	return fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(objects...).WithInterceptorFuncs(funcs).Build()
}

func TestAdmissionCheckInstalled(t *testing.T) {
	old := Server{LacksMutatingPolicies: true}
	for name, test := range map[string]struct {
		server    Server
		installed []client.Object
		// wantOperator tells that the operator injects.
		wantOperator bool
		want         string
	}{
		"config/default": {installed: installedWith(admissionv1.Fail)},
		"config/default, of which some is missing": {
			installed: withoutPolicy(installedWith(admissionv1.Fail), "inject-binding"),
			want:      `the API server lacks a MutatingAdmissionPolicyBinding for "inject", so`,
		},
		"nothing":                              {want: "the API server lacks MutatingAdmissionPolicy"},
		"config/compat, where it is needed":    {server: old, installed: compatInstalled(), wantOperator: true},
		"config/compat, after an upgrade":      {installed: compatInstalled(), wantOperator: true},
		"config/default, where it cannot work": {server: old, installed: installedWith(""), wantOperator: true, want: "config/compat"},
		"config/compat, of which some is missing": {
			server: old, installed: withoutPolicy(compatInstalled(), "nslifecycle-gate"), wantOperator: true,
			want: `the API server lacks ValidatingAdmissionPolicy "gate"; run`,
		},
		"policies of both": {
			installed: append(compatInstalled(), installedWith("")[:6]...),
			want:      "policy guard is the one of config/compat",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			admission := newAdmission(interceptor.Funcs{}, test.installed...)
			admission.Server = test.server
			operatorInjects, err := admission.CheckInstalled(t.Context())
			g.Expect(operatorInjects).To(Equal(test.wantOperator))
			if test.want == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(test.want)))
			}
		})
	}
}
