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
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/matchers"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

var _ = Describe("The templates with which a namespace is created", func() {
	// waiting returns a namespace that waits for its template, and a function that ends the wait.
	waiting := func(ctx context.Context, labels ...string) (*corev1.Namespace, func()) {
		GinkgoHelper()
		base := newTemplate(framework.Unique("base"), only("unknown",
			`{"apiVersion":"test.example.com/v1","kind":"Unknown","metadata":{"name":"x"}}`))
		create(ctx, base)
		namespace := selectedBy(base.Name)
		for i := 0; i < len(labels); i += 2 {
			namespace.Labels[labels[i]] = labels[i+1]
		}
		Expect(creator.Create(ctx, namespace)).To(Succeed())
		expectWaiting(ctx, namespace, "KindNotFound")
		return namespace, func() {
			GinkgoHelper()
			change(ctx, base.Name, only("base", configMap("base", "a")))
			expectOpen(ctx, namespace)
			expectValue(ctx, namespace, "base", "a")
		}
	}

	DescribeTable("are the only ones that are applied while it is initializing",
		func(ctx context.Context, name string, extends bool) {
			later := newTemplate(framework.Unique(name), only("later", configMap("later", "a")),
				func(spec *v1alpha1.NamespaceTemplateSpec) {
					spec.Access, spec.ExistingNamespaces = v1alpha1.AccessRestricted, extends
				})
			later.Spec.NamespaceSelector = &v1alpha1.NamespaceSelector{
				MatchLabels: map[string]v1alpha1.LabelValue{"tier": v1alpha1.LabelValue(later.Name)},
			}
			namespace, open := waiting(ctx, "tier", later.Name)
			Expect(cluster.Admin.Create(ctx, later)).To(Succeed())
			DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Delete(ctx, later)).To(Succeed()) })
			Eventually(func(g Gomega) {
				probe := wrappers.MakeNamespace("probe").Label("tier", later.Name).Obj()
				g.Expect(cluster.Admin.Create(ctx, probe, client.DryRunAll)).To(Succeed())
				g.Expect(probe.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationSelectedTemplates, later.Name))
			}).WithContext(ctx).Should(Succeed())
			// A pass over the namespace.
			patchNamespace(ctx, namespace, `{"metadata":{"annotations":{"note":"x"}}}`)
			expectWaiting(ctx, namespace, "KindNotFound")
			Expect(objectsOf(ctx, namespace)).To(BeEmpty())
			history := framework.WatchNamespace(ctx, cluster.Admin.Config, namespace)
			open()
			Eventually(func(g Gomega) {
				var opened *corev1.Namespace
				for _, state := range history.States() {
					if _, isInitializing := state.Labels[v1alpha1.LabelInitializing]; !isInitializing && opened == nil {
						opened = state
					}
				}
				g.Expect(opened).NotTo(BeNil())
				g.Expect(opened.Annotations[v1alpha1.AnnotationTemplates]).NotTo(ContainSubstring(later.Name))
			}).WithContext(ctx).Should(Succeed())
			if extends {
				expectValue(ctx, namespace, "later", "a")
			}
		},
		Entry("not a restricted one that is created later", "new-only", false, SpecTimeout(5*time.Minute)),
		Entry("not one that extends to existing namespaces, which gets it afterwards", "extended", true,
			SpecTimeout(5*time.Minute)),
	)

	It("are the only ones that limit the namespaces of its creator, whoever labels them later", func(ctx context.Context) {
		limited := newTemplate(framework.Unique("limited"), only("config", configMap("config", "a")),
			func(spec *v1alpha1.NamespaceTemplateSpec) {
				spec.MaxNamespacesPerUser, spec.ExistingNamespaces = ptr.To[int32](1), true
			})
		create(ctx, limited)
		label := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, v1alpha1.LabelTemplate, limited.Name)
		By("labelling older namespaces, which get the template")
		for range 2 {
			old := wrappers.MakeNamespace(framework.Unique("old")).Obj()
			Expect(creator.Create(ctx, old)).To(Succeed())
			patchNamespace(ctx, old, label)
			expectValue(ctx, old, "config", "a")
		}
		first := selectedBy(limited.Name)
		createOpen(ctx, first)
		By("labelling a namespace that is initializing, although the limit is reached")
		namespace, open := waiting(ctx)
		patchNamespace(ctx, namespace, label)
		patchNamespace(ctx, namespace, `{"metadata":{"annotations":{"note":"x"}}}`)
		expectWaiting(ctx, namespace, "KindNotFound")
		open()
		By("removing the labels, which does not evade the limit")
		relabel(ctx, "", first)
		refused := selectedBy(limited.Name)
		expectRefused(ctx, refused, `has 1 namespaces with template "`+limited.Name+`", which permits 1`)
	}, SpecTimeout(5*time.Minute))
})

// expectRefused creates a Namespace as alice, and expects that its initialization fails.
func expectRefused(ctx context.Context, namespace *corev1.Namespace, message string) {
	GinkgoHelper()
	// The spec reads the condition.
	namespace.Finalizers = []string{"test.example.com/hold"}
	Expect(creator.Create(ctx, namespace)).To(Succeed())
	Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace.Name).Should(matchers.HaveCondition(
		v1alpha1.ConditionInitializing, corev1.ConditionFalse, v1alpha1.ReasonFailed, message))
	patchNamespace(ctx, namespace, `{"metadata":{"finalizers":null}}`)
}
