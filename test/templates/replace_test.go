// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	. "github.com/nslifecycle/nslifecycle/test/framework/matchers"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// valueOf returns a field of an object named "team", and the UID of the object.
func valueOf(g Gomega, ctx context.Context, namespace *corev1.Namespace, kind schema.GroupVersionKind, path ...string) (any, types.UID) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	g.Expect(cluster.Admin.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: "team"}, object)).To(Succeed())
	value, _, err := unstructured.NestedFieldNoCopy(object.Object, path...)
	g.Expect(err).NotTo(HaveOccurred())
	return value, object.GetUID()
}

var roleBindings = rbacv1.SchemeGroupVersion.WithKind("RoleBinding")

// failuresOf returns the reasons of the failures in the status of a template.
func failuresOf(ctx context.Context, name string) []string {
	GinkgoHelper()
	current := getTemplate(Default, ctx, name)
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
	added := createInitialized(ctx, selectedBy(template.Name))
	value, _ := valueOf(Default, ctx, added, kind, path...)
	Expect(value).To(Equal(want))
}

// createBefore returns an initialized Namespace with an object that the operator has not created, and a template that
// selects it.
func createBefore(
	ctx context.Context, manifest string, changes ...func(*v1alpha1.NamespaceTemplateSpec),
) (*v1alpha1.NamespaceTemplate, *corev1.Namespace) {
	GinkgoHelper()
	template := newTemplate(framework.Unique("immutable"), append(changes, only("team", manifest), withPrune)...)
	namespace := framework.CreateAs(ctx, cluster.Admin, selectedBy(template.Name))
	object := &unstructured.Unstructured{}
	Expect(object.UnmarshalJSON([]byte(manifest))).To(Succeed())
	object.SetNamespace(namespace.Name)
	cluster.Admin.Creates(ctx, object)
	create(ctx, template)
	Expect(expectRecorded(ctx, namespace, template.Name).IsAdopted).To(BeTrue())
	return template, namespace
}

var _ = Describe("A change that the API server does not permit for an existing object", func() {
	immutable := func(value string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"team"},"immutable":true,"data":{"key":%q}}`, value)
	}
	secret := func(kind string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"team"},"type":%q,
			"data":{"username":"YQ==","password":"YQ=="}}`, kind)
	}
	withLock := func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Objects[0].Lock = v1alpha1.LockAll }
	none := func(*v1alpha1.NamespaceTemplateSpec) {}
	core := corev1.SchemeGroupVersion.WithKind

	DescribeTable("replaces one that the operator has created, and reaches new namespaces",
		func(
			ctx context.Context, before, after string, changes func(*v1alpha1.NamespaceTemplateSpec),
			want any, kind schema.GroupVersionKind, path ...string,
		) {
			template, old := createSelecting(ctx, "replace", only("team", before), changes)
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
			added := createInitialized(ctx, selectedBy(template.Name))
			value, _ := valueOf(Default, ctx, added, kind, path...)
			Expect(value).To(Equal(want))
		},
		Entry("roleRef", bindingTo("ClusterRole", "edit"), bindingTo("ClusterRole", "view"), none, "view", roleBindings, "roleRef", "name"),
		Entry("roleRef of a locked RoleBinding", bindingTo("ClusterRole", "edit"), bindingTo("ClusterRole", "view"), withLock, "view", roleBindings, "roleRef", "name"),
		Entry("type of a Secret", secret("Opaque"), secret("kubernetes.io/basic-auth"), none, "kubernetes.io/basic-auth", core("Secret"), "type"),
		Entry("an immutable ConfigMap", immutable("a"), immutable("b"), none, "b", core("ConfigMap"), "data", "key"),
	)

	It("replaces a copy whose source is replaced", func(ctx context.Context) {
		source := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: controlplane.SourceNamespace, Name: "team"},
			Data:       map[string][]byte{"username": []byte("a"), "password": []byte("a")},
		}
		cluster.Admin.Creates(ctx, source)
		DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Delete(ctx, source)).To(Succeed()) })
		_, namespace := createSelecting(ctx, "copy", func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.Objects = []v1alpha1.TemplateObject{{Name: "team", SourceRef: &v1alpha1.TemplateSourceReference{Kind: "Secret", Name: source.Name}}}
		})
		cluster.Admin.Deletes(ctx, source)
		source.ResourceVersion, source.UID, source.Type = "", "", corev1.SecretTypeBasicAuth
		source.Data["password"] = []byte("new")
		cluster.Admin.Creates(ctx, source)
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
		expectCondition(ctx, template.Name, v1alpha1.ConditionReady, metav1.ConditionTrue, "0 of 1")
		expectEvents(ctx, old, "TemplateFieldImmutable")
		expectNewNamespacesGet(ctx, template, "view", roleBindings, "roleRef", "name")
		role, current := valueOf(Default, ctx, old, roleBindings, "roleRef", "name")
		Expect(role).To(Equal("edit"))
		Expect(current).To(Equal(uid))
		By("the deletion by a user, as the message says")
		binding := get(ctx, old, "team", &rbacv1.RoleBinding{})
		cluster.Admin.Deletes(ctx, binding)
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "All 2")
		role, _ = valueOf(Default, ctx, old, roleBindings, "roleRef", "name")
		Expect(role).To(Equal("view"))
	})

	It("is reported if the ServiceAccount may not delete objects, and reaches new namespaces", func(ctx context.Context) {
		name := framework.Unique("cautious")
		cluster.Admin.Creates(ctx, &corev1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Namespace: controlplane.SystemNamespace, Name: name},
		})
		cluster.Bind(ctx, name, []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{v1alpha1.VerbProvision}},
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create", "patch"}},
		}, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: controlplane.SystemNamespace, Name: name})
		cluster.AllowImpersonation(ctx, name)
		template, _ := createSelecting(ctx, "cautious", only("team", immutable("a")),
			func(spec *v1alpha1.NamespaceTemplateSpec) { spec.ServiceAccountName = name })
		change(ctx, template.Name, only("team", immutable("b")))
		Eventually(failuresOf).WithContext(ctx).WithArguments(ctx, template.Name).Should(Equal([]string{"FieldImmutable"}))
		expectNewNamespacesGet(ctx, template, "b", core("ConfigMap"), "data", "key")
	})
})

var _ = Describe("An object that the operator may replace", func() {
	It("is not deleted if an admission policy rejects its change", func(ctx context.Context) {
		template, old := createSelecting(ctx, "named", only("team", bindingTo("ClusterRole", "edit")))
		_, uid := valueOf(Default, ctx, old, roleBindings)
		framework.DenyByPolicy(ctx, cluster.Admin, framework.RequestsFor(rbacv1.GroupName, "rolebindings", "CREATE", "UPDATE"),
			"object.metadata.name == 'team' && 'forbidden' in object.metadata.?labels.orValue({})", "the label is forbidden")
		probe := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "team", Labels: map[string]string{"forbidden": "x"}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}}
		Eventually(func() bool {
			err := cluster.Admin.Create(ctx, probe.DeepCopy(), client.DryRunAll)
			return apierrors.IsInvalid(err)
		}).WithContext(ctx).Should(BeTrue())
		manifest := strings.Replace(bindingTo("ClusterRole", "edit"), `"name":"team"`, `"name":"team","labels":{"forbidden":"x"}`, 1)
		Expect(manifest).To(ContainSubstring("forbidden"))
		change(ctx, template.Name, only("team", manifest))
		Eventually(failuresOf).WithContext(ctx).WithArguments(ctx, template.Name).Should(Equal([]string{"FieldImmutable"}))
		_, now := valueOf(Default, ctx, old, roleBindings)
		Expect(now).To(Equal(uid))
	})

	It("does not stop the rollout if a quota has no space for another one", func(ctx context.Context) {
		template, hostile := createSelecting(ctx, "full", only("team", bindingTo("ClusterRole", "edit")),
			func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Rollout.FailureThreshold = 1 })
		quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: hostile.Name, Name: "full"}, Spec: corev1.ResourceQuotaSpec{
			Hard: corev1.ResourceList{"count/rolebindings.rbac.authorization.k8s.io": resource.MustParse("1")},
		}}
		cluster.Admin.Creates(ctx, quota)
		Eventually(func(g Gomega) {
			g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(quota), quota)).To(Succeed())
			g.Expect(quota.Status.Used).NotTo(BeEmpty())
		}).WithContext(ctx).Should(Succeed())
		var others []*corev1.Namespace
		for range 4 {
			o := createInitialized(ctx, selectedBy(template.Name))
			others = append(others, o)
		}
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse)
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			only("team", bindingTo("ClusterRole", "view"))(spec)
			spec.Rollout.MaxNamespacesPerSecond = 1
		})
		for _, o := range others {
			Eventually(func(g Gomega) {
				role, _ := valueOf(g, ctx, o, roleBindings, "roleRef", "name")
				g.Expect(role).To(Equal("view"))
			}).WithContext(ctx).Should(Succeed())
		}
		expectReached(ctx, template.Name)
		Eventually(func() []string { return failuresOf(ctx, template.Name) }).WithContext(ctx).
			Should(Equal([]string{"FieldImmutable"}))
	})
})

// expectWaiting waits until a new Namespace waits for its templates with a reason.
func expectWaiting(ctx context.Context, namespace *corev1.Namespace, reason string, message ...string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		current := cluster.GetNamespace(g, ctx, namespace.Name)
		g.Expect(current.Labels).To(HaveKey(v1alpha1.LabelInitializing))
		g.Expect(current).To(HaveCondition(v1alpha1.TemplatesInitializer+v1alpha1.ConditionInitializedSuffix,
			corev1.ConditionFalse, reason, message...))
	}).WithContext(ctx).Should(Succeed())
}

// definition returns a CustomResourceDefinition for a kind in test.example.com.
func definition(kind string, scope apiextensionsv1.ResourceScope) *apiextensionsv1.CustomResourceDefinition {
	plural := strings.ToLower(kind) + "s"
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + ".test.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "test.example.com", Scope: scope,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Kind: kind, ListKind: kind + "List", Plural: plural, Singular: strings.ToLower(kind),
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
						Type: "object", XPreserveUnknownFields: ptr.To(true),
					},
				},
			}},
		},
	}
}

var _ = Describe("A kind of object", func() {
	It("can appear, disappear, reappear, and change its scope", func(ctx context.Context) {
		admin := framework.NewUser(cluster.Admin.Config, apiextensionsv1.AddToScheme)
		const kind = "Widget"
		install := func(scope apiextensionsv1.ResourceScope) {
			admin.Creates(ctx, definition(kind, scope))
		}
		uninstall := func(ctx context.Context) {
			object := definition(kind, "")
			Expect(client.IgnoreNotFound(admin.Delete(ctx, object))).To(Succeed())
			framework.ExpectDeleted(ctx, admin, object)
		}
		DeferCleanup(uninstall)
		widget := func() *unstructured.Unstructured {
			object := &unstructured.Unstructured{}
			object.SetAPIVersion("test.example.com/v1")
			object.SetKind(kind)
			return object
		}
		template := newTemplate(framework.Unique("kinds"), only("widget",
			`{"apiVersion":"test.example.com/v1","kind":"Widget","metadata":{"name":"widget"},"spec":{"key":"a"}}`))
		template.Spec.Objects = append(template.Spec.Objects, objectNamed("config", configMap("config", "a")))
		create(ctx, template)
		namespace := selectedBy(template.Name)
		key := client.ObjectKey{Namespace: namespace.Name, Name: "widget"}

		By("a kind that does not exist yet")
		creator.Creates(ctx, namespace)
		expectWaiting(ctx, namespace, "KindNotFound", `"widget"`, "Widget")
		install(apiextensionsv1.NamespaceScoped)
		Eventually(func(g Gomega) {
			g.Expect(cluster.GetNamespace(g, ctx, namespace.Name).Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
		}).WithContext(ctx).Should(Succeed())
		first := widget()
		Expect(admin.Get(ctx, key, first)).To(Succeed())

		By("a kind that is removed")
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "All 1")
		config := getConfig(ctx, namespace, "config")
		uninstall(ctx)
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionTrue, "1 failed")
		cluster.Admin.Deletes(ctx, config.DeepCopy())
		expectValue(ctx, namespace, "config", "a")

		By("a kind that reappears")
		install(apiextensionsv1.NamespaceScoped)
		Eventually(func(g Gomega) {
			again := widget()
			g.Expect(admin.Get(ctx, key, again)).To(Succeed())
			g.Expect(again.GetUID()).NotTo(Equal(first.GetUID()))
		}).WithContext(ctx).Should(Succeed())
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse)

		By("a kind that becomes cluster-scoped")
		uninstall(ctx)
		install(apiextensionsv1.ClusterScoped)
		Eventually(func(g Gomega) {
			current := getTemplate(g, ctx, template.Name)
			g.Expect(current.Status.Failures).To(HaveLen(1))
			g.Expect(current.Status.Failures[0].Reason).To(Equal("InvalidObject"), current.Status.Failures[0].Message)
		}).WithContext(ctx).Should(Succeed())
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion("test.example.com/v1")
		list.SetKind(kind + "List")
		Expect(admin.List(ctx, list)).To(Succeed())
		Expect(list.Items).To(BeEmpty())
	})
})

var _ = Describe("Hostile namespaces", func() {
	It("are data in the objects", func(ctx context.Context) {
		hostile := "a\"'`\n${ns.name} }} {{ \\ \u2028" + strings.Repeat("x", 1024)
		template := createTemplate(ctx, "hostile", only("config", configMap("config",
			"${ns.annotations['input']} and ${ns.labels['input']}")))
		namespace := selectedBy(template.Name)
		namespace.Annotations = map[string]string{"input": hostile}
		namespace.Labels["input"] = strings.Repeat("l", 63)
		createInitialized(ctx, namespace)
		expectValue(ctx, namespace, "config", hostile+" and "+namespace.Labels["input"])
	})

	It("can contain 128 objects, and not more output than the limit", func(ctx context.Context) {
		many := func(value string) func(*v1alpha1.NamespaceTemplateSpec) {
			return func(spec *v1alpha1.NamespaceTemplateSpec) {
				spec.Objects = nil
				for i := range 128 {
					name := fmt.Sprintf("config-%d", i)
					spec.Objects = append(spec.Objects, objectNamed(name, configMap(name, value)))
				}
			}
		}
		template, namespace := createSelecting(ctx, "many", many(strings.Repeat("${ns.annotations[?'input'].orValue('')}", 3)))
		Expect(objectsOf(ctx, namespace)).To(HaveLen(128))
		large := selectedBy(template.Name)
		large.Annotations = map[string]string{"input": strings.Repeat("x", 4096)}
		creator.Creates(ctx, large)
		expectWaiting(ctx, large, "OutputTooLarge", "config-")
		Expect(objectsOf(ctx, large)).To(BeEmpty())
	})

	It("do not make the operator repeat a write that the API server rejects", func(ctx context.Context) {
		template := newTemplate(framework.Unique("full"), only("config", configMap("config", "a")),
			func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Scope = v1alpha1.ScopeAllNamespaces })
		namespace := wrappers.MakeNamespace(framework.Unique("ns")).Obj()
		namespace.Annotations = map[string]string{"input": strings.Repeat("x", 256<<10-10)}
		cluster.Admin.Creates(ctx, namespace)
		DeferCleanup(restoreManager)
		intercepted := restartManager(ctx, nil)
		create(ctx, template)
		cluster.Admin.Patches(ctx, namespace.DeepCopy(), `{"metadata":{"labels":{"kind":"`+template.Name+`"}}}`)
		expectValue(ctx, namespace, "config", "a")
		expectEvents(ctx, namespace, "TemplateNotRecorded")
		write := "PATCH /api/v1/namespaces/" + namespace.Name + "/status?"
		Expect(countContaining(intercepted.sent(), write)).To(BeNumerically(">", 0))
		Consistently(func() int {
			return countContaining(intercepted.requestsSoFar(), write)
		}).WithTimeout(3 * time.Second).WithContext(ctx).Should(BeNumerically("<", 15))
	})
})
