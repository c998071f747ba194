// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0
package templateobjects

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	. "github.com/nslifecycle/nslifecycle/test/matchers"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

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
		admin := framework.NewClient(cluster.Admin.Config, apiextensionsv1.AddToScheme)
		const kind = "Widget"
		install := func(scope apiextensionsv1.ResourceScope) {
			Expect(admin.Create(ctx, definition(kind, scope))).To(Succeed())
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
		Expect(creator.Create(ctx, namespace)).To(Succeed())
		expectWaiting(ctx, namespace, "KindNotFound", `"widget"`, "Widget")
		install(apiextensionsv1.NamespaceScoped)
		Eventually(func(g Gomega) {
			g.Expect(cluster.GetNamespace(g, ctx, namespace.Name).Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
		}).WithContext(ctx).Should(Succeed())
		first := widget()
		Expect(admin.Get(ctx, key, first)).To(Succeed())

		By("a kind that is removed")
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "All 1")
		config := get(ctx, namespace, "config", &corev1.ConfigMap{})
		uninstall(ctx)
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionTrue, "1 failed")
		Expect(cluster.Admin.Delete(ctx, config.DeepCopy())).To(Succeed())
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
			current := &v1alpha1.NamespaceTemplate{}
			g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(template), current)).To(Succeed())
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
		template := newTemplate(framework.Unique("hostile"), only("config", configMap("config",
			"${ns.annotations['input']} and ${ns.labels['input']}")))
		create(ctx, template)
		namespace := selectedBy(template.Name)
		namespace.Annotations = map[string]string{"input": hostile}
		namespace.Labels["input"] = strings.Repeat("l", 63)
		createOpen(ctx, namespace)
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
		template := newTemplate(framework.Unique("many"), many(strings.Repeat("${ns.annotations[?'input'].orValue('')}", 3)))
		create(ctx, template)
		namespace := selectedBy(template.Name)
		createOpen(ctx, namespace)
		Expect(objectsOf(ctx, namespace)).To(HaveLen(128))
		large := selectedBy(template.Name)
		large.Annotations = map[string]string{"input": strings.Repeat("x", 4096)}
		Expect(creator.Create(ctx, large)).To(Succeed())
		expectWaiting(ctx, large, "OutputTooLarge", "config-")
		Expect(objectsOf(ctx, large)).To(BeEmpty())
	})

	It("do not make the operator repeat a write that the API server rejects", func(ctx context.Context) {
		template := newTemplate(framework.Unique("full"), only("config", configMap("config", "a")),
			func(spec *v1alpha1.NamespaceTemplateSpec) { spec.ExistingNamespaces = true })
		namespace := wrappers.MakeNamespace(framework.Unique("ns")).Obj()
		namespace.Annotations = map[string]string{"input": strings.Repeat("x", 256<<10-10)}
		Expect(cluster.Admin.Create(ctx, namespace)).To(Succeed())
		DeferCleanup(restoreManager)
		intercepted := restartManager(ctx, nil)
		create(ctx, template)
		patchNamespace(ctx, namespace, `{"metadata":{"labels":{"kind":"`+template.Name+`"}}}`)
		expectValue(ctx, namespace, "config", "a")
		expectEvents(ctx, namespace, "NotRecorded")
		write := "PATCH /api/v1/namespaces/" + namespace.Name + "/status?"
		Expect(countContaining(intercepted.sent(), write)).To(BeNumerically(">", 0))
		Consistently(func() int {
			return countContaining(intercepted.requestsSoFar(), write)
		}).WithTimeout(3 * time.Second).WithContext(ctx).Should(BeNumerically("<", 15))
	})
})
