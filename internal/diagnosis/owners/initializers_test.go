// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/onsi/gomega"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

func TestCanAnyoneInitialize(t *testing.T) {
	role := func(verbs ...string) rbacv1.ClusterRole {
		return rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: verbs, ResourceNames: []string{"only-this"},
		}}}
	}
	to := func(subjects ...rbacv1.Subject) rbacv1.ClusterRoleBinding {
		return rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "b"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "r"}, Subjects: subjects,
		}
	}
	account := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "quota-system", Name: "initializer"}
	tests := map[string]struct {
		role    rbacv1.ClusterRole
		binding rbacv1.ClusterRoleBinding
		waiting []v1alpha1.Subject
		want    bool
	}{
		"the initialize verb": {role: role("initialize"), binding: to(account), want: true},
		"all verbs":           {role: role("*"), binding: to(account), want: true},
		"a waiting subject": {role: role("*"), binding: to(account), waiting: []v1alpha1.Subject{
			{Kind: v1alpha1.SubjectServiceAccount, Namespace: account.Namespace, Name: account.Name},
		}},
		"another verb":                                      {role: role("get"), binding: to(account)},
		"a binding without subjects":                        {role: role("initialize"), binding: to()},
		"a binding of the control plane":                    {role: role("initialize"), binding: to(systemSubjects...)},
		"a binding of the control plane and an initializer": {role: role("initialize"), binding: to(append(slices.Clone(systemSubjects), account)...), want: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(CanAnyoneInitialize([]rbacv1.ClusterRole{test.role},
				[]rbacv1.ClusterRoleBinding{test.binding}, test.waiting)).To(Equal(test.want))
		})
	}
}
