// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"testing"

	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

func TestReview(t *testing.T) {
	const all = "system:authenticated"
	tests := map[string]struct {
		subject rbacv1.Subject
		user    string
		groups  []string
	}{
		"a user":  {rbacv1.Subject{Kind: "User", Name: "alice"}, "alice", []string{all}},
		"a group": {rbacv1.Subject{Kind: "Group", Name: "team"}, "", []string{"team"}},
		"a ServiceAccount": {rbacv1.Subject{Kind: "ServiceAccount", Namespace: "ci", Name: "bot"}, "system:serviceaccount:ci:bot",
			[]string{all, "system:serviceaccounts", "system:serviceaccounts:ci"}},
		"a ServiceAccount of the Namespace": {rbacv1.Subject{Kind: "ServiceAccount", Name: "bot"}, "system:serviceaccount:ns:bot",
			[]string{all, "system:serviceaccounts", "system:serviceaccounts:ns"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			spec := Review(test.subject, &authorizationv1.ResourceAttributes{Namespace: "ns"})
			g.Expect(spec.User).To(Equal(test.user))
			g.Expect(spec.Groups).To(Equal(test.groups))
		})
	}
}
