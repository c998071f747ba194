// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package guardrails

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

func protected(prefix string) *wrappers.NamespaceWrapper {
	return wrappers.MakeNamespace(unique(prefix)).Label(v1alpha1.LabelDeletionProtection, "enabled")
}

var _ = Describe("Deletion protection", func() {
	It("denies every deletion of a labeled namespace, and prints the command that removes the label", func(ctx context.Context) {
		namespace := framework.CreateAs(ctx, owner, protected("protected").Obj())
		Expect(namespace.Labels).To(HaveKeyWithValue(v1alpha1.LabelDeletionProtection, "enabled"))
		operator, err := cluster.ServiceAccountConfig(ctx, controlplane.SystemNamespace, controlplane.ServiceAccount)
		Expect(err).NotTo(HaveOccurred())
		collector := cluster.Impersonate("system:serviceaccount:kube-system:generic-garbage-collector",
			"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:masters")
		for who, c := range map[string]client.Client{
			"its owner": owner, "an administrator": admin,
			"the garbage collector": collector,
		} {
			By(who)
			Expect(c.Delete(ctx, namespace.DeepCopy())).To(BeForbiddenBy("protection",
				`namespace "`+namespace.Name+`" is protected from deletion`,
				"kubectl label namespace "+namespace.Name+" nslifecycle.dev/deletion-protection-"))
		}
		// Two policies deny it.
		Expect(framework.NewUser(operator).Delete(ctx, namespace.DeepCopy())).To(Or(BeForbiddenBy("confine"), BeForbiddenBy("protection")))
		for how, options := range map[string][]client.DeleteOption{
			"a dry run": {client.DryRunAll}, "in the foreground": {client.PropagationPolicy(metav1.DeletePropagationForeground)},
			"without a grace period": {client.GracePeriodSeconds(0)}, "orphaning dependents": {client.PropagationPolicy(metav1.DeletePropagationOrphan)},
		} {
			By(how)
			Expect(owner.Delete(ctx, namespace.DeepCopy(), options...)).To(BeForbiddenBy("protection"))
		}
		expectKept(ctx, namespace)

		By("removing the label with the printed command")
		_, err = cluster.Kubectl(ctx, ownerConfig, "label", "namespace", namespace.Name, "nslifecycle.dev/deletion-protection-")
		Expect(err).NotTo(HaveOccurred())
		owner.Deletes(ctx, namespace)
	}, SpecTimeout(5*time.Minute))

	It("applies to any value of the label, even if the label is added later", func(ctx context.Context) {
		for _, value := range []string{"", "false", "disabled"} {
			namespace := framework.CreateAs(ctx, owner, wrappers.MakeNamespace(unique("value")).Obj())
			patch := client.MergeFrom(namespace.DeepCopy())
			namespace.Labels[v1alpha1.LabelDeletionProtection] = value
			Expect(editor.Status().Patch(ctx, namespace, patch)).To(Succeed())
			Expect(owner.Delete(ctx, namespace)).To(BeForbiddenBy("protection"))
		}
	}, SpecTimeout(5*time.Minute))

	It("applies even if several namespaces are deleted at once", func(ctx context.Context) {
		namespace := framework.CreateAs(ctx, owner, protected("collection").Obj())
		err := cluster.Admin.Clientset().CoreV1().RESTClient().Delete().Resource("namespaces").
			Param("labelSelector", v1alpha1.LabelDeletionProtection).Do(ctx).Error()
		Expect(err).To(Satisfy(apierrors.IsMethodNotSupported))

		By("deleting the namespaces one after another with kubectl")
		other := framework.CreateAs(ctx, owner, wrappers.MakeNamespace(unique("collection")).Obj())
		_, err = cluster.Kubectl(ctx, ownerConfig, "delete", "namespace", namespace.Name, other.Name, "--wait=false")
		Expect(err).To(MatchError(ContainSubstring(`namespace "` + namespace.Name + `" is protected`)))
		Expect(cluster.GetNamespace(Default, ctx, other.Name).DeletionTimestamp).NotTo(BeNil())
		expectKept(ctx, namespace)
	}, SpecTimeout(5*time.Minute))

	It("does not apply to namespaces without the label", func(ctx context.Context) {
		namespace := framework.CreateAs(ctx, owner, wrappers.MakeNamespace(unique("free")).Label("deletion-protection", "enabled").Obj())
		owner.Deletes(ctx, namespace)
	}, SpecTimeout(5*time.Minute))

	It("does not block a deletion that has already started", func(ctx context.Context) {
		namespace := wrappers.MakeNamespace(unique("late")).Obj()
		namespace.Finalizers = []string{"test.example.com/hold"}
		owner.Creates(ctx, namespace)
		owner.Deletes(ctx, namespace)
		owner.Patches(ctx, namespace, `{"metadata":{"labels":{"nslifecycle.dev/deletion-protection":"enabled"}}}`)
		Expect(namespace.Labels).To(HaveKey(v1alpha1.LabelDeletionProtection))

		By("sending the final DELETE after the operator has finalized the namespace")
		// The API server skips admission of a DELETE only if spec.finalizers is not empty.
		Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace.Name).Should(HaveField("Spec.Finalizers", BeEmpty()))
		owner.Deletes(ctx, namespace.DeepCopy())
		owner.Patches(ctx, namespace, `{"metadata":{"finalizers":null}}`)
		framework.ExpectDeleted(ctx, admin, namespace)
	}, SpecTimeout(5*time.Minute))

	It("keeps a namespace whose initialization has failed, and reports this until the label is removed", func(ctx context.Context) {
		cluster.Register(ctx, "protection", "a.test.example.com")
		namespace := framework.CreateAs(ctx, owner, protected("failed").Obj())
		Expect(namespace.Labels).To(And(HaveKey(v1alpha1.LabelInitializing), HaveKey(v1alpha1.LabelDeletionProtection)))
		fail(ctx, namespace)
		values := []string{"no budget", "not deleted",
			"run: kubectl label namespace " + namespace.Name + " nslifecycle.dev/deletion-protection-"}
		Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace.Name).
			Should(And(
				HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionFalse, v1alpha1.ReasonFailed, values[0]),
				HaveCondition(v1alpha1.ConditionReady, corev1.ConditionFalse, v1alpha1.ReasonFailed, values[1:]...)))
		Eventually(cluster.EventsAbout).WithContext(ctx).WithArguments(namespace, "").
			Should(ContainElement(And(HavePrefix("Warning InitializationFailed "),
				ContainSubstring(values[0]), ContainSubstring(values[1]), HaveSuffix(values[2]))))
		expectKept(ctx, namespace)

		By("removing the label")
		_, err := cluster.Kubectl(ctx, ownerConfig, "label", "namespace", namespace.Name, "nslifecycle.dev/deletion-protection-")
		Expect(err).NotTo(HaveOccurred())
		Eventually(func(g Gomega) {
			g.Expect(cluster.GetNamespace(g, ctx, namespace.Name).DeletionTimestamp).NotTo(BeNil())
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(5*time.Minute))
})

// fail makes the initialization of a namespace fail.
func fail(ctx context.Context, namespace *corev1.Namespace) {
	GinkgoHelper()
	admin.Patches(ctx, namespace.DeepCopy(), `{"metadata":{"annotations":{"nslifecycle.dev/initialization-result":"{\"status\":\"Failure\",\"message\":\"no budget\"}"}}}`)
}
