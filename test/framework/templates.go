// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template/permissions"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// AddTemplateAccount creates a ServiceAccount that may apply objects of templates, and that the operator
// may impersonate.
func (c *Cluster) AddTemplateAccount(ctx context.Context, name string) {
	GinkgoHelper()
	c.Admin.Creates(ctx, &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: controlplane.SystemNamespace, Name: name},
	})
	subject := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: controlplane.SystemNamespace, Name: name}
	c.Bind(ctx, name, []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{v1alpha1.VerbProvision}},
		{
			APIGroups: []string{"", "networking.k8s.io", "rbac.authorization.k8s.io", "test.example.com"},
			Resources: []string{"*"}, Verbs: []string{"create", "patch", "delete", "bind", "escalate"},
		},
	}, subject)
	c.AllowImpersonation(ctx, name)
}

// CreateTemplate creates a template, and waits until the API server selects new Namespaces with its labels. The
// template exists until the spec ends.
func (c *Cluster) CreateTemplate(ctx context.Context, template *v1alpha1.NamespaceTemplate) {
	GinkgoHelper()
	// The API server recognizes the parameter kind of the policies for templates after some time.
	Eventually(func() error { return c.Admin.Create(ctx, template) }).WithContext(ctx).Should(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(c.Admin.Delete(ctx, template))).To(Succeed())
		Eventually(func(g Gomega) {
			for _, entry := range c.EffectiveSet(g, ctx).Templates {
				g.Expect(entry.Name).NotTo(Equal(template.Name))
			}
		}).WithContext(ctx).Should(Succeed())
	})
	Eventually(func(g Gomega) {
		probe := wrappers.MakeNamespace("probe")
		if selector := template.Spec.NamespaceSelector; selector != nil {
			for key, value := range selector.MatchLabels {
				probe.Label(key, string(value))
			}
		} else {
			probe.Label(v1alpha1.LabelTemplate, template.Name)
		}
		g.Expect(c.Admin.Create(ctx, &probe.Namespace, client.DryRunAll)).To(Succeed())
		selected := strings.Split(probe.Annotations[v1alpha1.AnnotationSelectedTemplates], ",")
		g.Expect(selected).To(ContainElement(template.Name))
		// Before, the API server can call the webhook for an earlier set, which sees the current one.
		set := c.EffectiveSet(g, ctx)
		g.Expect(set.Status.ObservedGeneration).To(Equal(set.Generation))
	}).WithContext(ctx).Should(Succeed())
}

// AllowImpersonation allows the operator to impersonate a ServiceAccount.
func (c *Cluster) AllowImpersonation(ctx context.Context, name string) {
	GinkgoHelper()
	namespaced := metav1.ObjectMeta{Namespace: controlplane.SystemNamespace, Name: "impersonate-" + name}
	c.Admin.Creates(ctx, &rbacv1.Role{
		ObjectMeta: namespaced, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, ResourceNames: []string{name},
			Verbs: []string{"impersonate"},
		}},
	})
	c.Admin.Creates(ctx, &rbacv1.RoleBinding{
		ObjectMeta: namespaced,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: namespaced.Name},
		Subjects: []rbacv1.Subject{{
			Kind: rbacv1.ServiceAccountKind, Namespace: controlplane.SystemNamespace, Name: controlplane.ServiceAccount,
		}},
	})
}

// TemplatePermissions returns the ServiceAccount and the permissions that a template in the cluster requires.
func (c *Cluster) TemplatePermissions(ctx context.Context, name string) []client.Object {
	GinkgoHelper()
	template := &v1alpha1.NamespaceTemplate{}
	Expect(c.Admin.Get(ctx, client.ObjectKey{Name: name}, template)).To(Succeed())
	account := template.Spec.ServiceAccountName
	grant, errs := permissions.For(permissions.Input{
		Spec: &template.Spec, SystemNamespace: controlplane.SystemNamespace,
		ResourceOf: func(kind schema.GroupVersionKind) (schema.GroupVersionResource, error) {
			resource, _ := meta.UnsafeGuessKindToResource(kind)
			return resource, nil
		},
	})
	Expect(errs).To(BeEmpty())
	operator := rbacv1.Subject{
		Kind: rbacv1.ServiceAccountKind, Namespace: controlplane.SystemNamespace, Name: controlplane.ServiceAccount,
	}
	objects := []client.Object{permissions.ServiceAccount(controlplane.SystemNamespace, account)}
	objects = append(objects, permissions.Impersonation(operator, controlplane.SystemNamespace, account).Objects(name)...)
	return append(objects, grant.Objects(name)...)
}
