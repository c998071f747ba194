// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/admission/verify"
)

// ServesPolicies reports whether an API server serves MutatingAdmissionPolicy v1. Otherwise, the manager must run for
// new namespaces to be admitted.
func ServesPolicies(ctx context.Context, config *rest.Config) bool {
	GinkgoHelper()
	discoveryClient, err := discovery.NewDiscoveryClientForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	serves, err := verify.ServesMutating(ctx, discoveryClient)
	Expect(err).NotTo(HaveOccurred())
	return serves
}

// SkipWithoutPolicies skips a spec that has no meaning if an API server does not serve MutatingAdmissionPolicy v1.
func SkipWithoutPolicies(ctx context.Context, config *rest.Config, reason string) {
	GinkgoHelper()
	if !ServesPolicies(ctx, config) {
		Skip("the API server does not serve MutatingAdmissionPolicy v1: " + reason)
	}
}

// PolicyKinds returns the types of webhook configurations and admission policies that an API server serves, in the
// order in which they must be deleted: without the bindings of the gate policy, the operator does not apply its
// policies again.
func PolicyKinds(ctx context.Context, config *rest.Config) string {
	GinkgoHelper()
	kinds := []string{"mutatingwebhookconfigurations", "validatingadmissionpolicybindings"}
	if ServesPolicies(ctx, config) {
		kinds = append(kinds, "mutatingadmissionpolicybindings", "mutatingadmissionpolicies")
	}
	return strings.Join(append(kinds, "validatingadmissionpolicies"), ",")
}

// DenyByPolicy makes a policy deny the requests that a CEL expression matches, with a message. It returns the
// binding of the policy. Both are deleted when the spec ends.
func DenyByPolicy(
	ctx context.Context, admin *User, requests admissionv1.RuleWithOperations, expression, message string,
) *admissionv1.ValidatingAdmissionPolicyBinding {
	GinkgoHelper()
	policy := &admissionv1.ValidatingAdmissionPolicy{}
	policy.Name = Unique("denial")
	policy.Spec.MatchConstraints = &admissionv1.MatchResources{
		ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: requests}},
	}
	policy.Spec.MatchConditions = []admissionv1.MatchCondition{{Name: "denied", Expression: expression}}
	policy.Spec.Validations = []admissionv1.Validation{{Expression: "false", Message: message}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{}
	binding.Name, binding.Spec.PolicyName = policy.Name, policy.Name
	binding.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Deny}
	for _, object := range []client.Object{policy, binding} {
		admin.Creates(ctx, object)
		DeferCleanup(func(ctx context.Context) {
			Expect(client.IgnoreNotFound(admin.Delete(ctx, object))).To(Succeed())
		})
	}
	return binding
}

// MutateByPolicy makes a policy apply a configuration, which is a CEL expression, to the objects of requests until the
// spec or the container ends. The parameters of the policy are ConfigMaps.
func MutateByPolicy(
	ctx context.Context, admin *User, name string, requests admissionv1.RuleWithOperations, expression string,
	spec admissionv1.MutatingAdmissionPolicyBindingSpec,
) {
	GinkgoHelper()
	policy := &admissionv1.MutatingAdmissionPolicy{}
	policy.Name, policy.Spec.ReinvocationPolicy = name, admissionv1.NeverReinvocationPolicy
	policy.Spec.MatchConstraints = &admissionv1.MatchResources{
		ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: requests}},
	}
	policy.Spec.Mutations = []admissionv1.Mutation{{
		PatchType:          admissionv1.PatchTypeApplyConfiguration,
		ApplyConfiguration: &admissionv1.ApplyConfiguration{Expression: expression},
	}}
	if spec.ParamRef != nil {
		policy.Spec.ParamKind = &admissionv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
	}
	binding := &admissionv1.MutatingAdmissionPolicyBinding{Spec: spec}
	binding.Name, binding.Spec.PolicyName = name, name
	for _, object := range []client.Object{policy, binding} {
		admin.Creates(ctx, object)
		DeferCleanup(func(ctx context.Context) { Expect(admin.Delete(ctx, object)).To(Succeed()) })
	}
}

// RequestsFor returns the operations on a resource in all versions.
func RequestsFor(group, resource string, operations ...admissionv1.OperationType) admissionv1.RuleWithOperations {
	return admissionv1.RuleWithOperations{Operations: operations, Rule: admissionv1.Rule{
		APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{resource},
	}}
}
