// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templateobjects

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// copying makes a template contain only a copy of a source.
func copying(source *corev1.ConfigMap) func(*v1alpha1.NamespaceTemplateSpec) {
	return func(spec *v1alpha1.NamespaceTemplateSpec) {
		spec.Objects = []v1alpha1.TemplateObject{{Name: "copy", Copy: &v1alpha1.TemplateCopy{
			APIVersion: "v1", Kind: "ConfigMap", Namespace: source.Namespace, Name: source.Name,
		}}}
	}
}

// newSource returns a ConfigMap with one key.
func newSource(namespace, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: framework.Unique("source")},
		Data:       map[string]string{"key": value},
	}
}

var _ = Describe("The source of a copy", func() {
	AfterEach(restoreManager)

	It("causes no writes if only its metadata changes, also while the operator is stopped", func(ctx context.Context) {
		intercepted := restartManager(ctx, nil)
		source := newSource("default", "a")
		Expect(cluster.Admin.Create(ctx, source)).To(Succeed())
		template := newTemplate(framework.Unique("touched"), copying(source))
		create(ctx, template)
		var namespaces []*corev1.Namespace
		for range 3 {
			namespace := selectedBy(template.Name)
			createOpen(ctx, namespace)
			namespaces = append(namespaces, namespace)
		}
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "All 3")
		versions := func() []string {
			var versions []string
			for _, namespace := range namespaces {
				current := &corev1.Namespace{}
				Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(namespace), current)).To(Succeed())
				versions = append(versions, current.ResourceVersion,
					get(ctx, namespace, source.Name, &corev1.ConfigMap{}).ResourceVersion)
			}
			return versions
		}
		touch := func(value int) {
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"refreshed":"%d"},"labels":{"refreshed":"%d"}}}`, value, value)
			Expect(cluster.Admin.Patch(ctx, source.DeepCopy(), client.RawPatch(types.MergePatchType, patch))).To(Succeed())
		}
		reads := func() int { return countContaining(intercepted.sent(), "/configmaps/"+source.Name) }
		before := versions()
		for i := range 3 {
			reads()
			touch(i)
			Eventually(reads).WithContext(ctx).Should(BeNumerically(">", 0), "the operator recognizes the change")
		}
		Consistently(func() []string { return writes(intercepted.sent()) }).WithContext(ctx).Should(BeEmpty())
		Expect(versions()).To(Equal(before))
		By("a restart")
		cluster.StopManager()
		touch(4)
		intercepted = restartManager(ctx, nil)
		Eventually(reads).WithContext(ctx).Should(BeNumerically(">", 0), "the operator compares the content")
		Consistently(func() []string { return writes(intercepted.sent()) }).WithContext(ctx).Should(BeEmpty())
		Expect(versions()).To(Equal(before))
		By("a change of the content")
		source.Data["key"] = "b"
		source.ResourceVersion = ""
		Expect(cluster.Admin.Update(ctx, source)).To(Succeed())
		for _, namespace := range namespaces {
			expectValue(ctx, namespace, source.Name, "b")
		}
	})

	It("is not copied from a namespace that was deleted and created again, until an administrator accepts it", func(ctx context.Context) {
		origin := wrappers.MakeNamespace(framework.Unique("origin")).Obj()
		source := newSource(origin.Name, "a")
		template := newTemplate(framework.Unique("replaced"), copying(source))
		create(ctx, template)
		By("a namespace that is created after the template")
		namespace := selectedBy(template.Name)
		Expect(creator.Create(ctx, namespace)).To(Succeed())
		expectWaiting(ctx, namespace, "SourceNotFound")
		Expect(cluster.Admin.Create(ctx, origin)).To(Succeed())
		Expect(cluster.Admin.Create(ctx, source.DeepCopy())).To(Succeed())
		expectOpen(ctx, namespace)
		expectValue(ctx, namespace, source.Name, "a")
		By("its replacement by another user")
		Expect(cluster.Admin.Delete(ctx, origin.DeepCopy())).To(Succeed())
		framework.ExpectDeleted(ctx, cluster.Admin, origin.DeepCopy())
		Expect(cluster.Admin.Create(ctx, wrappers.MakeNamespace(origin.Name).Obj())).To(Succeed())
		other := source.DeepCopy()
		other.Data["key"] = "theirs"
		Expect(cluster.Admin.Create(ctx, other)).To(Succeed())
		failures := func() []v1alpha1.TemplateFailure {
			current := &v1alpha1.NamespaceTemplate{}
			Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(template), current)).To(Succeed())
			return current.Status.Failures
		}
		isReplaced := ContainElement(And(HaveField("Namespace", namespace.Name), HaveField("Reason", "SourceNamespaceReplaced"),
			HaveField("Message", ContainSubstring("sourceNamespaces"))))
		Eventually(failures).WithContext(ctx).Should(isReplaced)
		later := selectedBy(template.Name)
		Expect(creator.Create(ctx, later)).To(Succeed())
		expectWaiting(ctx, later, "SourceNamespaceReplaced")
		By("a restart, and another change of the template")
		restartManager(ctx, nil)
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.Objects = append(spec.Objects, objectNamed("config", configMap("config", "x")))
		})
		expectValue(ctx, namespace, "config", "x")
		Eventually(failures).WithContext(ctx).Should(isReplaced)
		Consistently(func() string {
			return get(ctx, namespace, source.Name, &corev1.ConfigMap{}).Data["key"]
		}).WithContext(ctx).Should(Equal("a"))
		err := cluster.Admin.Get(ctx, client.ObjectKey{Namespace: later.Name, Name: source.Name}, &corev1.ConfigMap{})
		Expect(client.IgnoreNotFound(err)).To(Succeed())
		Expect(err).To(HaveOccurred())
		By("accepting the new namespace")
		Expect(cluster.Admin.Status().Patch(ctx, template.DeepCopy(), client.RawPatch(types.MergePatchType,
			[]byte(`{"status":{"sourceNamespaces":null}}`)))).To(Succeed())
		expectOpen(ctx, later)
		for _, copied := range []*corev1.Namespace{namespace, later} {
			expectValue(ctx, copied, source.Name, "theirs")
		}
	})

	It("is not deleted in its own namespace if the template contained it before", func(ctx context.Context) {
		template := newTemplate(framework.Unique("src"), only("config", configMap("config", "a")))
		create(ctx, template)
		src, other := selectedBy(template.Name), selectedBy(template.Name)
		createOpen(ctx, src)
		createOpen(ctx, other)
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.Objects = []v1alpha1.TemplateObject{{Name: "config", Copy: &v1alpha1.TemplateCopy{
				APIVersion: "v1", Kind: "ConfigMap", Namespace: src.Name, Name: "config",
			}}, objectNamed("more", configMap("more", "a"))}
		})
		Eventually(func() error {
			return cluster.Admin.Get(ctx, client.ObjectKey{Namespace: src.Name, Name: "more"}, &corev1.ConfigMap{})
		}).WithContext(ctx).Should(Succeed())
		Consistently(func() error {
			return cluster.Admin.Get(ctx, client.ObjectKey{Namespace: src.Name, Name: "config"}, &corev1.ConfigMap{})
		}).WithContext(ctx).WithTimeout(9 * time.Second).Should(Succeed())
	})
})
