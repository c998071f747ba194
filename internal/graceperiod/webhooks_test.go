// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package graceperiod

import (
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestDelayingWebhooks(t *testing.T) {
	rule := func(operation admissionv1.OperationType, group string, resources ...string) admissionv1.RuleWithOperations {
		return admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{operation},
			Rule: admissionv1.Rule{
				APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: resources,
				Scope: ptr.To(admissionv1.AllScopes),
			},
		}
	}
	scoped := func(rule admissionv1.RuleWithOperations, scope *admissionv1.ScopeType) admissionv1.RuleWithOperations {
		rule.Scope = scope
		return rule
	}
	in := func(rule admissionv1.RuleWithOperations, groups ...string) admissionv1.RuleWithOperations {
		rule.APIGroups = groups
		return rule
	}
	const create = admissionv1.Create

	tests := map[string]struct {
		rules []admissionv1.RuleWithOperations
		want  bool
	}{
		"all operations and resources":     {rules: []admissionv1.RuleWithOperations{rule("*", "*", "*/*")}, want: true},
		"CREATE of a resource":             {rules: []admissionv1.RuleWithOperations{rule(create, "apps", "deployments")}, want: true},
		"CREATE, namespaced":               {rules: []admissionv1.RuleWithOperations{scoped(rule(create, "*", "*"), ptr.To(admissionv1.NamespacedScope))}, want: true},
		"CREATE, without a scope":          {rules: []admissionv1.RuleWithOperations{scoped(rule(create, "*", "*"), nil)}, want: true},
		"CREATE, cluster-scoped":           {rules: []admissionv1.RuleWithOperations{scoped(rule(create, "*", "*"), ptr.To(admissionv1.ClusterScope))}},
		"CREATE of a subresource":          {rules: []admissionv1.RuleWithOperations{rule(create, "", "pods/eviction")}, want: true},
		"CREATE of all scale subresources": {rules: []admissionv1.RuleWithOperations{rule(create, "", "*/scale")}, want: true},
		"CONNECT":                          {rules: []admissionv1.RuleWithOperations{rule(admissionv1.Connect, "", "pods/exec")}, want: true},
		"UPDATE":                           {rules: []admissionv1.RuleWithOperations{rule(admissionv1.Update, "*", "*")}},
		"DELETE":                           {rules: []admissionv1.RuleWithOperations{rule(admissionv1.Delete, "*", "*")}},
		"UPDATE and CREATE":                {rules: []admissionv1.RuleWithOperations{rule(admissionv1.Update, "", "pods"), rule(create, "", "pods")}, want: true},
		"Namespaces":                       {rules: []admissionv1.RuleWithOperations{rule("*", "", "namespaces", "namespaces/*", "nodes")}},
		"Namespaces and Pods":              {rules: []admissionv1.RuleWithOperations{rule("*", "", "namespaces", "pods")}, want: true},
		"namespaces in any group":          {rules: []admissionv1.RuleWithOperations{rule("*", "*", "namespaces")}, want: true},
		"namespaces in another group":      {rules: []admissionv1.RuleWithOperations{in(rule("*", "", "namespaces"), "", "servicebus.azure.com")}, want: true},
		"ClusterRoles":                     {rules: []admissionv1.RuleWithOperations{rule("*", "rbac.authorization.k8s.io", "clusterroles")}},
		"no rules":                         {},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			mutating := []admissionv1.MutatingWebhookConfiguration{{
				ObjectMeta: metav1.ObjectMeta{Name: "m"},
				Webhooks:   []admissionv1.MutatingWebhook{{Name: "a"}, {Name: "b", Rules: test.rules}},
			}}
			validating := []admissionv1.ValidatingWebhookConfiguration{{
				ObjectMeta: metav1.ObjectMeta{Name: "v"},
				Webhooks:   []admissionv1.ValidatingWebhook{{Name: "a"}, {Name: "b", Rules: test.rules}},
			}}
			var want []string
			if test.want {
				want = []string{`"b" in MutatingWebhookConfiguration "m"`, `"b" in ValidatingWebhookConfiguration "v"`}
			}
			g.Expect(DelayingWebhooks(mutating, validating)).To(Equal(want))
		})
	}
}
