// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

const contentRole = "nslifecycle-content"

// expectDeletable deletes a namespace and waits until it no longer exists.
func expectDeletable(ctx context.Context, namespace *corev1.Namespace) {
	GinkgoHelper()
	admin.Deletes(ctx, namespace)
	framework.ExpectDeleted(ctx, admin, namespace)
}

func rulesOf(ctx context.Context, name string) []rbacv1.PolicyRule {
	GinkgoHelper()
	role := &rbacv1.ClusterRole{}
	Expect(admin.Get(ctx, client.ObjectKey{Name: name}, role)).To(Succeed())
	return role.Rules
}

// grantsList reports whether rules name a type with the verb list.
func grantsList(rules []rbacv1.PolicyRule, group, resource string) bool {
	return slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool {
		return slices.Contains(rule.APIGroups, group) && slices.Contains(rule.Resources, resource) &&
			slices.Contains(rule.Verbs, "list")
	})
}

// establish creates a CRD, and an object as soon as the API server accepts it.
func (t customType) establish(ctx context.Context, namespace string) {
	GinkgoHelper()
	admin.Creates(ctx, t.definition())
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(admin.Delete(ctx, t.definition()))).To(Succeed())
	})
	resource := newDynamic().Resource(t.resource()).Namespace(namespace)
	for {
		_, err := resource.Create(ctx, t.object(namespace, "new"), metav1.CreateOptions{})
		if err == nil {
			return
		}
		Expect(err).To(Satisfy(apierrors.IsNotFound))
	}
}

var _ = Describe("The ClusterRole content", func() {
	It("gets a new type with one update and without a failed pass", func(ctx context.Context) {
		expectDeletable(ctx, createNamespace(ctx, "content-first")) // The types that exist already.
		watcher, err := cluster.Admin.Clientset().RbacV1().ClusterRoles().Watch(ctx, metav1.ListOptions{
			FieldSelector: "metadata.name=" + contentRole,
		})
		Expect(err).NotTo(HaveOccurred())
		defer watcher.Stop()
		Eventually(watcher.ResultChan()).Should(Receive()) // The current role.

		custom, namespace := makeCustomType(), createNamespace(ctx, "content-new")
		other := createNamespace(ctx, "content-other")
		custom.establish(ctx, namespace.Name)
		admin.Deletes(ctx, other, namespace)
		framework.ExpectDeleted(ctx, admin, other)
		framework.ExpectDeleted(ctx, admin, namespace)
		expectNothingStored(ctx, custom, namespace.Name)
		Expect(grantsList(rulesOf(ctx, contentRole), custom.group, custom.plural)).To(BeTrue())
		Expect(watcher.ResultChan()).To(Receive())
		Expect(watcher.ResultChan()).NotTo(Receive())
		events, err := cluster.Admin.Clientset().CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{
			FieldSelector: "involvedObject.name=" + namespace.Name,
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(events.Items).NotTo(ContainElement(HaveField("Reason", "ContentDeletionFailed")))
	})

	It("loses the rules that others add, and a type that becomes cluster-scoped", func(ctx context.Context) {
		custom := createCustomType(ctx)
		expectDeletable(ctx, createNamespace(ctx, "content-scope"))
		Expect(grantsList(rulesOf(ctx, contentRole), custom.group, custom.plural)).To(BeTrue())
		admin.Deletes(ctx, custom.definition())
		framework.ExpectDeleted(ctx, admin, custom.definition())
		cluster := custom.definition()
		Expect(unstructured.SetNestedField(cluster.Object, "Cluster", "spec", "scope")).To(Succeed())
		admin.Creates(ctx, cluster)
		role := &rbacv1.ClusterRole{}
		Eventually(func(g Gomega) {
			g.Expect(admin.Get(ctx, client.ObjectKey{Name: contentRole}, role)).To(Succeed())
			role.Rules = append(role.Rules, rbacv1.PolicyRule{
				APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"delete", "list", "watch"},
			})
			g.Expect(admin.Update(ctx, role)).To(Succeed())
		}).WithContext(ctx).Should(Succeed())
		custom.expectServed(ctx)
		Eventually(func(g Gomega) {
			// A change of a type makes the operator discover the types again.
			g.Expect(unstructured.SetNestedStringSlice(cluster.Object, []string{framework.Unique("short")},
				"spec", "names", "shortNames")).To(Succeed())
			updateDefinition(ctx, cluster)
			expectDeletable(ctx, createNamespace(ctx, "content-scope"))
			g.Expect(rulesOf(ctx, contentRole)).NotTo(ContainElement(HaveField("Resources", ContainElement("*"))))
			g.Expect(grantsList(rulesOf(ctx, contentRole), custom.group, custom.plural)).To(BeFalse())
		}).WithContext(ctx).Should(Succeed())
	})

	It("is kept by kubectl apply", func(ctx context.Context) {
		expectDeletable(ctx, createNamespace(ctx, "content-apply"))
		before := rulesOf(ctx, contentRole)
		Expect(before).NotTo(BeEmpty())
		Expect(cluster.ControlPlane.Install(ctx)).To(Succeed())
		Expect(rulesOf(ctx, contentRole)).To(Equal(before))
		manifest, err := cluster.Kubectl(ctx, cluster.Admin.Config, "kustomize", controlplane.Root()+"/config/rbac")
		Expect(err).NotTo(HaveOccurred())
		manifest = strings.ReplaceAll(manifest, "name: content\n", "name: "+contentRole+"\n")
		for _, arguments := range [][]string{{"apply"}, {"apply", "--server-side", "--force-conflicts"}} {
			for object := range strings.SplitSeq(manifest, "---\n") {
				// Not the binding, whose roleRef has this kind.
				if strings.Contains(object, "\nkind: ClusterRole\n") && strings.Contains(object, "name: "+contentRole+"\n") {
					_, err := cluster.KubectlWithInput(ctx, cluster.Admin.Config, object, append(arguments, "-f", "-")...)
					Expect(err).NotTo(HaveOccurred())
				}
			}
			Expect(rulesOf(ctx, contentRole)).To(Equal(before))
		}
	})
})

var _ = Describe("A type that the operator may not list", func() {
	It("is reported with the command that grants it, and delays no other namespace", func(ctx context.Context) {
		cluster.PauseManager()
		custom := createCustomType(ctx)
		// Without permission to change its ClusterRole, which another tool owns.
		config := serviceAccountConfig(ctx, "owned", corev1.FinalizerKubernetes)
		keeper := &rbacv1.ClusterRole{}
		Expect(admin.Get(ctx, client.ObjectKey{Name: "owned-keeper"}, keeper)).To(Succeed())
		keeper.Rules[0].Verbs = []string{"get", "update"}
		admin.Updates(ctx, keeper)
		role := &rbacv1.ClusterRole{}
		Expect(admin.Get(ctx, client.ObjectKey{Name: "owned-content"}, role)).To(Succeed())
		for gvr := range namespacedTypes(ctx, "delete") {
			if gvr.Group != custom.group {
				role.Rules = append(role.Rules, rbacv1.PolicyRule{
					APIGroups: []string{gvr.Group}, Resources: []string{gvr.Resource}, Verbs: []string{"list", "watch", "delete"},
				})
			}
		}
		admin.Updates(ctx, role)
		startManager(ctx, config)

		namespace := createNamespace(ctx, "denied")
		createCustom(ctx, custom, custom.object(namespace.Name, "kept"))
		limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "deleted"}}
		admin.Creates(ctx, limits)
		admin.Deletes(ctx, namespace)
		command := fmt.Sprintf("kubectl create clusterrole nslifecycle-content-%[1]s --verb=delete,list,watch --resource=%[1]s",
			custom.plural+"."+custom.group)
		eventuallyNamespace(ctx, namespace.Name, HaveContentFailure("is forbidden", command))
		expectNamespaceFinalizerKept(ctx, namespace)
		Expect(countOf(Default, ctx, corev1.SchemeGroupVersion.WithResource("limitranges"), namespace.Name)).To(Equal(0))

		By("running the command from the condition")
		_, message, found := strings.Cut(cluster.GetNamespace(Default, ctx, namespace.Name).Status.Conditions[indexOfFailure(ctx, namespace)].Message,
			"to grant the permission, run: ")
		Expect(found).To(BeTrue())
		for index, command := range strings.SplitN(message, " && ", 3) {
			words := strings.Fields(command)
			Expect(words).To(HaveLen([]int{6, 6, 5}[index]))
			Expect(words[:2]).To(Equal([]string{"kubectl", []string{"create", "create", "label"}[index]}))
			_, err := cluster.Kubectl(ctx, cluster.Admin.Config, words[1:]...)
			Expect(err).NotTo(HaveOccurred())
			if words[1] == "label" {
				continue
			}
			DeferCleanup(func(ctx context.Context) {
				_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "delete", words[2], words[3])
				Expect(err).NotTo(HaveOccurred())
			})
		}
		framework.ExpectDeleted(ctx, admin, namespace)
		expectNothingStored(ctx, custom, namespace.Name)
	})
})

func indexOfFailure(ctx context.Context, namespace *corev1.Namespace) int {
	GinkgoHelper()
	return slices.IndexFunc(cluster.GetNamespace(Default, ctx, namespace.Name).Status.Conditions, func(c corev1.NamespaceCondition) bool {
		return c.Type == corev1.NamespaceDeletionContentFailure
	})
}
