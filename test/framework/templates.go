// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
)

// AddTemplateAccount creates a ServiceAccount that may apply objects of templates, and that the operator
// may impersonate.
func (c *Cluster) AddTemplateAccount(ctx context.Context, name string) {
	GinkgoHelper()
	Expect(c.Admin.Create(ctx, &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: controlplane.SystemNamespace, Name: name},
	})).To(Succeed())
	subject := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: controlplane.SystemNamespace, Name: name}
	c.Bind(ctx, name, []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{v1alpha1.VerbFurnish}},
		{
			APIGroups: []string{"", "networking.k8s.io", "rbac.authorization.k8s.io", "test.example.com"},
			Resources: []string{"*"}, Verbs: []string{"create", "patch", "delete", "get", "bind", "escalate"},
		},
	}, subject)
	c.AllowImpersonation(ctx, name)
}

// AllowImpersonation allows the operator to impersonate a ServiceAccount.
func (c *Cluster) AllowImpersonation(ctx context.Context, name string) {
	GinkgoHelper()
	namespaced := metav1.ObjectMeta{Namespace: controlplane.SystemNamespace, Name: "impersonate-" + name}
	Expect(c.Admin.Create(ctx, &rbacv1.Role{
		ObjectMeta: namespaced, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, ResourceNames: []string{name},
			Verbs: []string{"impersonate"},
		}},
	})).To(Succeed())
	Expect(c.Admin.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: namespaced,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: namespaced.Name},
		Subjects: []rbacv1.Subject{{
			Kind: rbacv1.ServiceAccountKind, Namespace: controlplane.SystemNamespace, Name: controlplane.ServiceAccount,
		}},
	})).To(Succeed())
}
