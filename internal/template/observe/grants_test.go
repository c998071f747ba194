// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"testing"

	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

func TestSampleOf(t *testing.T) {
	tests := map[string]struct {
		rules []rbacv1.PolicyRule
		want  *authorizationv1.ResourceAttributes
	}{
		"no rules":   {},
		"a URL rule": {rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/x"}}}},
		"a URL rule, and a rule for a named resource": {
			[]rbacv1.PolicyRule{
				{Verbs: []string{"get"}, NonResourceURLs: []string{"/x"}},
				{Verbs: []string{"get", "list"}, APIGroups: []string{"apps"}, Resources: []string{"deployments"}, ResourceNames: []string{"a", "b"}},
			},
			&authorizationv1.ResourceAttributes{Verb: "get", Group: "apps", Resource: "deployments", Name: "a"},
		},
		"a subresource": {
			[]rbacv1.PolicyRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"pods/log"}}},
			&authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Resource: "pods", Subresource: "log"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(sampleOf(test.rules)).To(Equal(test.want))
		})
	}
}
