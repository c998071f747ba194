// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templateobjects

import (
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/matchers"
)

var _ = Describe("A limit of namespaces for each user", func() {
	It("is exact while a user creates namespaces concurrently and the manager restarts", func(ctx context.Context) {
		template := newTemplate(framework.Unique("limited"), func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.MaxNamespacesPerUser = ptr.To[int32](3)
		})
		create(ctx, template)
		var creators sync.WaitGroup
		for i := range 30 {
			if i == 15 {
				cluster.StopManager()
				cluster.StartManager(ctx)
			}
			creators.Go(func() {
				defer GinkgoRecover()
				create := func() error { return creator.Create(ctx, selectedBy(template.Name)) }
				if framework.ServesPolicies(ctx, cluster.Admin.Config) {
					Expect(create()).To(Succeed())
					return
				}
				// The API server rejects new namespaces while no manager runs.
				Eventually(create).WithContext(ctx).Should(Succeed())
			})
		}
		creators.Wait()
		expectRemaining := func(g Gomega, count int) []corev1.Namespace {
			var namespaces corev1.NamespaceList
			g.Expect(cluster.Admin.List(ctx, &namespaces, client.MatchingLabels{"kind": template.Name})).To(Succeed())
			g.Expect(namespaces.Items).To(HaveLen(count))
			for _, namespace := range namespaces.Items {
				g.Expect(namespace.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
				g.Expect(namespace.DeletionTimestamp).To(BeNil())
			}
			return namespaces.Items
		}
		Eventually(func(g Gomega) { expectRemaining(g, 3) }).WithContext(ctx).Should(Succeed())
		open := expectRemaining(Default, 3)

		By("refusing another one with a reason, also after a restart")
		cluster.StopManager()
		cluster.StartManager(ctx)
		full := `Forbidden: user "alice" has 3 namespaces with template "` + template.Name + `", which permits 3 for each user`
		refused := selectedBy(template.Name)
		expectRefused(ctx, refused, full+": delete a namespace")
		framework.ExpectDeleted(ctx, cluster.Admin, refused)

		By("refusing another one while one is terminating: its Pods can still run")
		patchNamespace(ctx, &open[0], `{"metadata":{"finalizers":["test.example.com/hold"]}}`)
		Expect(creator.Delete(ctx, open[0].DeepCopy())).To(Succeed())
		expectRefused(ctx, selectedBy(template.Name), full+", 1 of them being deleted: wait for the deletion")
		patchNamespace(ctx, &open[0], `{"metadata":{"finalizers":null}}`)
		framework.ExpectDeleted(ctx, cluster.Admin, &open[0])

		By("refusing another one while one stays that has failed, because it is protected from deletion")
		createOpen(ctx, selectedBy(template.Name))
		kept := selectedBy(template.Name)
		kept.Labels[v1alpha1.LabelDeletionProtection] = ""
		expectRefused(ctx, kept, full)
		Expect(creator.Delete(ctx, &open[1])).To(Succeed())
		framework.ExpectDeleted(ctx, cluster.Admin, &open[1])
		expectRefused(ctx, selectedBy(template.Name), full+", 1 of them failed and protected from deletion: delete a namespace")
		patchNamespace(ctx, kept, `{"metadata":{"labels":{"nslifecycle.dev/deletion-protection":null}}}`)
		framework.ExpectDeleted(ctx, cluster.Admin, kept)

		By("admitting another user, and the same user after a deletion")
		bob := cluster.AddUserWithRules(ctx, framework.Unique("bob"), rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"create"},
		})
		other := selectedBy(template.Name)
		Expect(bob.Create(ctx, other)).To(Succeed())
		expectOpen(ctx, other)
		createOpen(ctx, selectedBy(template.Name))
	}, SpecTimeout(5*time.Minute))
})

// The admission policies do not know such a template, so they do not check who selects it.
var _ = Describe("A template that does not fit into the set", func() {
	It("is not applied", func(ctx context.Context) {
		older := client.MatchingLabels{"test": "older"}
		DeferCleanup(func(ctx context.Context) {
			Expect(cluster.Admin.DeleteAllOf(ctx, &v1alpha1.NamespaceTemplate{}, older)).To(Succeed())
			Eventually(func(g Gomega) { g.Expect(cluster.EffectiveSet(g, ctx).Templates).To(BeEmpty()) }).
				WithContext(ctx).Should(Succeed())
		})
		var last *v1alpha1.NamespaceTemplate
		for i := range v1alpha1.MaxSetTemplates {
			last = newTemplate(fmt.Sprintf("a-%d", i), only("config", configMap("config", "a")))
			last.Labels = older
			Expect(cluster.Admin.Create(ctx, last)).To(Succeed())
		}
		template := newTemplate(framework.Unique("z-omitted"), only("config", configMap("config", "a")),
			func(spec *v1alpha1.NamespaceTemplateSpec) {
				spec.Access, spec.ExistingNamespaces = v1alpha1.AccessRestricted, true
			})
		Expect(cluster.Admin.Create(ctx, template)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Delete(ctx, template)).To(Succeed()) })
		expectCondition(ctx, template.Name, v1alpha1.ConditionValid, metav1.ConditionFalse, "the older templates are 128")

		By("selecting it together with one that fits")
		namespace := selectedBy(template.Name)
		namespace.Labels[v1alpha1.LabelTemplate] = last.Name
		createOpen(ctx, namespace)
		expectValue(ctx, namespace, "config", "a")
		Expect(namespace.Annotations[v1alpha1.AnnotationTemplates]).To(And(
			ContainSubstring(last.Name), Not(ContainSubstring(template.Name))))

		By("deleting an older template")
		Expect(cluster.Admin.Delete(ctx, last)).To(Succeed())
		expectCondition(ctx, template.Name, v1alpha1.ConditionValid, metav1.ConditionTrue)
		Eventually(func(g Gomega) {
			g.Expect(cluster.GetNamespace(g, ctx, namespace.Name).Annotations[v1alpha1.AnnotationTemplates]).
				To(ContainSubstring(template.Name))
		}).WithContext(ctx).Should(Succeed())
		Eventually(func() error { return creator.Create(ctx, selectedBy(template.Name), client.DryRunAll) }).
			WithContext(ctx).Should(matchers.BeForbiddenBy(v1alpha1.PolicyTemplates))
	}, SpecTimeout(5*time.Minute))
})
