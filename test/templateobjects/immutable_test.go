// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templateobjects

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

func claim(class string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"team"},"spec":{
		"accessModes":["ReadWriteOnce"],"storageClassName":%q,"resources":{"requests":{"storage":"1Gi"}}}}`, class)
}

// valueOf returns a field of an object named "team", and the UID of the object.
func valueOf(g Gomega, ctx context.Context, namespace *corev1.Namespace, kind schema.GroupVersionKind, path ...string) (any, types.UID) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	g.Expect(cluster.Admin.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: "team"}, object)).To(Succeed())
	value, _, err := unstructured.NestedFieldNoCopy(object.Object, path...)
	g.Expect(err).NotTo(HaveOccurred())
	return value, object.GetUID()
}

var (
	roleBindings = rbacv1.SchemeGroupVersion.WithKind("RoleBinding")
	claims       = corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim")
)

// failuresOf returns the reasons of the failures in the status of a template.
func failuresOf(ctx context.Context, name string) []string {
	GinkgoHelper()
	current := &v1alpha1.NamespaceTemplate{}
	Expect(cluster.Admin.Get(ctx, client.ObjectKey{Name: name}, current)).To(Succeed())
	var reasons []string
	for _, failure := range current.Status.Failures {
		reasons = append(reasons, failure.Reason)
	}
	return reasons
}

// expectNewNamespacesGet creates a Namespace once new Namespaces get the latest revision, and checks a field of its
// object.
func expectNewNamespacesGet(
	ctx context.Context, template *v1alpha1.NamespaceTemplate, want any, kind schema.GroupVersionKind, path ...string,
) {
	GinkgoHelper()
	expectReached(ctx, template.Name)
	added := selectedBy(template.Name)
	createOpen(ctx, added)
	value, _ := valueOf(Default, ctx, added, kind, path...)
	Expect(value).To(Equal(want))
}

// createBefore returns an open Namespace with an object that the operator has not created, and a template that selects it.
func createBefore(
	ctx context.Context, manifest string, changes ...func(*v1alpha1.NamespaceTemplateSpec),
) (*v1alpha1.NamespaceTemplate, *corev1.Namespace) {
	GinkgoHelper()
	template := newTemplate(framework.Unique("immutable"), append(changes, only("team", manifest), withPrune)...)
	namespace := selectedBy(template.Name)
	Expect(cluster.Admin.Create(ctx, namespace)).To(Succeed())
	object := &unstructured.Unstructured{}
	Expect(object.UnmarshalJSON([]byte(manifest))).To(Succeed())
	object.SetNamespace(namespace.Name)
	Expect(cluster.Admin.Create(ctx, object)).To(Succeed())
	create(ctx, template)
	Expect(expectRecorded(ctx, namespace, template.Name).IsAdopted).To(BeTrue())
	return template, namespace
}

var _ = Describe("A change that the API server does not permit for an existing object", func() {
	service := func(address string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Service","metadata":{"name":"team"},"spec":{"clusterIP":%q,"ports":[{"port":80}]}}`, address)
	}
	immutable := func(kind, value string) string {
		field := map[string]string{"ConfigMap": "data", "Secret": "stringData"}[kind]
		if kind == "Secret" {
			field, value = "data", map[string]string{"a": "YQ==", "b": "Yg=="}[value]
		}
		return fmt.Sprintf(`{"apiVersion":"v1","kind":%q,"metadata":{"name":"team"},"immutable":true,%q:{"key":%q}}`, kind, field, value)
	}
	secret := func(kind string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"team"},"type":%q,
			"data":{"username":"YQ==","password":"YQ=="}}`, kind)
	}
	quota := func(scope string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"team"},
			"spec":{"hard":{"pods":"5"},"scopes":[%q]}}`, scope)
	}
	withLock := func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Objects[0].Locked = true }
	withKeep := func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Removal.FromTemplate = v1alpha1.RemovalKeep }
	none := func(*v1alpha1.NamespaceTemplateSpec) {}
	core := corev1.SchemeGroupVersion.WithKind

	DescribeTable("replaces one that the operator has created, and reaches new namespaces",
		func(
			ctx context.Context, before, after string, changes func(*v1alpha1.NamespaceTemplateSpec),
			want any, kind schema.GroupVersionKind, path ...string,
		) {
			template := newTemplate(framework.Unique("replace"), only("team", before), changes)
			create(ctx, template)
			old := selectedBy(template.Name)
			createOpen(ctx, old)
			_, uid := valueOf(Default, ctx, old, kind, path...)
			expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "All 1")
			change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) {
				only("team", after)(spec)
				changes(spec)
			})
			Eventually(func(g Gomega) {
				value, current := valueOf(g, ctx, old, kind, path...)
				g.Expect(value).To(Equal(want))
				g.Expect(current).NotTo(Equal(uid))
			}).WithContext(ctx).Should(Succeed())
			expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "All 1")
			Expect(expectRecorded(ctx, old, template.Name).IsAdopted).To(BeFalse())
			added := selectedBy(template.Name)
			createOpen(ctx, added)
			value, _ := valueOf(Default, ctx, added, kind, path...)
			if kind.Kind != "Service" {
				Expect(value).To(Equal(want))
			}
		},
		Entry("roleRef", bindingTo("ClusterRole", "edit"), bindingTo("ClusterRole", "view"), none, "view", roleBindings, "roleRef", "name"),
		Entry("roleRef of a locked RoleBinding", bindingTo("ClusterRole", "edit"), bindingTo("ClusterRole", "view"), withLock, "view", roleBindings, "roleRef", "name"),
		Entry("roleRef, with removal Keep", bindingTo("ClusterRole", "edit"), bindingTo("ClusterRole", "view"), withKeep, "view", roleBindings, "roleRef", "name"),
		Entry("type of a Secret", secret("Opaque"), secret("kubernetes.io/basic-auth"), none, "kubernetes.io/basic-auth", core("Secret"), "type"),
		Entry("an immutable ConfigMap", immutable("ConfigMap", "a"), immutable("ConfigMap", "b"), none, "b", core("ConfigMap"), "data", "key"),
		Entry("an immutable Secret", immutable("Secret", "a"), immutable("Secret", "b"), none, "Yg==", core("Secret"), "data", "key"),
		Entry("clusterIP of a Service", service(""), service("None"), none, "None", core("Service"), "spec", "clusterIP"),
		Entry("scopes of a ResourceQuota", quota("BestEffort"), quota("NotBestEffort"), none, []any{"NotBestEffort"}, core("ResourceQuota"), "spec", "scopes"),
	)

	It("replaces a copy whose source is replaced", func(ctx context.Context) {
		source := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "team"},
			Data:       map[string][]byte{"username": []byte("a"), "password": []byte("a")},
		}
		Expect(cluster.Admin.Create(ctx, source)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Delete(ctx, source)).To(Succeed()) })
		template := newTemplate(framework.Unique("copy"), func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.Objects = []v1alpha1.TemplateObject{{Name: "team", Copy: &v1alpha1.TemplateCopy{
				APIVersion: "v1", Kind: "Secret", Namespace: source.Namespace, Name: source.Name,
			}}}
		})
		create(ctx, template)
		namespace := selectedBy(template.Name)
		createOpen(ctx, namespace)
		Expect(cluster.Admin.Delete(ctx, source)).To(Succeed())
		source.ResourceVersion, source.UID, source.Type = "", "", corev1.SecretTypeBasicAuth
		source.Data["password"] = []byte("new")
		Expect(cluster.Admin.Create(ctx, source)).To(Succeed())
		Eventually(func(g Gomega) {
			copied := &corev1.Secret{}
			g.Expect(cluster.Admin.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: "team"}, copied)).To(Succeed())
			g.Expect(copied.Type).To(Equal(source.Type))
			g.Expect(copied.Data).To(Equal(source.Data))
		}).WithContext(ctx).Should(Succeed())
	})

	It("is reported for an adopted object, and reaches new namespaces", func(ctx context.Context) {
		template, old := createBefore(ctx, bindingTo("ClusterRole", "edit"))
		_, uid := valueOf(Default, ctx, old, roleBindings)
		change(ctx, template.Name, only("team", bindingTo("ClusterRole", "view")))
		Eventually(failuresOf).WithContext(ctx).WithArguments(ctx, template.Name).Should(Equal([]string{"FieldImmutable"}))
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionTrue, "0 of 1", "1 failed")
		expectEvents(ctx, old, "FieldImmutable")
		expectNewNamespacesGet(ctx, template, "view", roleBindings, "roleRef", "name")
		role, current := valueOf(Default, ctx, old, roleBindings, "roleRef", "name")
		Expect(role).To(Equal("edit"))
		Expect(current).To(Equal(uid))
		By("the deletion by a user, as the message says")
		binding := get(ctx, old, "team", &rbacv1.RoleBinding{})
		Expect(cluster.Admin.Delete(ctx, binding)).To(Succeed())
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "All 2")
		role, _ = valueOf(Default, ctx, old, roleBindings, "roleRef", "name")
		Expect(role).To(Equal("view"))
	})

	It("is reported for a kind that holds data", func(ctx context.Context) {
		template := newTemplate(framework.Unique("claim"), only("team", claim("fast")))
		create(ctx, template)
		old := selectedBy(template.Name)
		createOpen(ctx, old)
		change(ctx, template.Name, only("team", claim("slow")))
		Eventually(failuresOf).WithContext(ctx).WithArguments(ctx, template.Name).Should(Equal([]string{"FieldImmutable"}))
		class, _ := valueOf(Default, ctx, old, claims, "spec", "storageClassName")
		Expect(class).To(Equal("fast"))
		expectNewNamespacesGet(ctx, template, "slow", claims, "spec", "storageClassName")
	})

	It("is reported if the ServiceAccount may not delete objects, and reaches new namespaces", func(ctx context.Context) {
		name := framework.Unique("cautious")
		Expect(cluster.Admin.Create(ctx, &corev1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Namespace: controlplane.SystemNamespace, Name: name},
		})).To(Succeed())
		cluster.Bind(ctx, name, []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{v1alpha1.VerbFurnish}},
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create", "patch"}},
		}, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: controlplane.SystemNamespace, Name: name})
		cluster.AllowImpersonation(ctx, name)
		template := newTemplate(framework.Unique("cautious"), only("team", immutable("ConfigMap", "a")),
			func(spec *v1alpha1.NamespaceTemplateSpec) { spec.ServiceAccountName = name })
		create(ctx, template)
		old := selectedBy(template.Name)
		createOpen(ctx, old)
		change(ctx, template.Name, only("team", immutable("ConfigMap", "b")))
		Eventually(failuresOf).WithContext(ctx).WithArguments(ctx, template.Name).Should(Equal([]string{"FieldImmutable"}))
		expectNewNamespacesGet(ctx, template, "b", core("ConfigMap"), "data", "key")
	})

	It("waits for the finalizers of the existing object", func(ctx context.Context) {
		template := newTemplate(framework.Unique("finalizer"), only("team", bindingTo("ClusterRole", "edit")))
		create(ctx, template)
		old := selectedBy(template.Name)
		createOpen(ctx, old)
		binding := get(ctx, old, "team", &rbacv1.RoleBinding{})
		binding.Finalizers = []string{"test.example.com/wait"}
		Expect(cluster.Admin.Update(ctx, binding)).To(Succeed())
		change(ctx, template.Name, only("team", bindingTo("ClusterRole", "view")))
		Eventually(failuresOf).WithContext(ctx).WithArguments(ctx, template.Name).Should(Equal([]string{"ObjectTerminating"}))
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		Expect(cluster.Admin.Patch(ctx, binding, patch)).To(Succeed())
		Eventually(func(g Gomega) {
			role, _ := valueOf(g, ctx, old, roleBindings, "roleRef", "name")
			g.Expect(role).To(Equal("view"))
		}).WithContext(ctx).Should(Succeed())
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "All 1")
	})

	It("deletes nothing if the API server rejects the new object, too", func(ctx context.Context) {
		template := newTemplate(framework.Unique("invalid"), only("team", secret("Opaque")))
		create(ctx, template)
		old := selectedBy(template.Name)
		createOpen(ctx, old)
		_, uid := valueOf(Default, ctx, old, core("Secret"))
		change(ctx, template.Name, only("team", secret("kubernetes.io/tls")))
		Eventually(failuresOf).WithContext(ctx).WithArguments(ctx, template.Name).Should(Equal([]string{"ApplyFailed"}))
		_, current := valueOf(Default, ctx, old, core("Secret"))
		Expect(current).To(Equal(uid))
		By("new namespaces, which such a revision never reaches")
		added := selectedBy(template.Name)
		createOpen(ctx, added)
		kind, _ := valueOf(Default, ctx, added, core("Secret"), "type")
		Expect(kind).To(Equal("Opaque"))
	})
})
