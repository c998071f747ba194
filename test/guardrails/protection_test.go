// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package guardrails

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

func protected(prefix string) *wrappers.NamespaceWrapper {
	return wrappers.MakeNamespace(unique(prefix)).Label(v1alpha1.LabelDeletionProtection, "enabled")
}

var _ = Describe("Deletion protection", func() {
	It("denies every deletion of a labeled namespace, and prints the command that removes the label", func(ctx context.Context) {
		namespace := create(ctx, owner, protected("protected"))
		Expect(namespace.Labels).To(HaveKeyWithValue(v1alpha1.LabelDeletionProtection, "enabled"))
		operator, err := plane.ServiceAccountConfig(ctx, controlplane.SystemNamespace, controlplane.ServiceAccount)
		Expect(err).NotTo(HaveOccurred())
		collector := rest.CopyConfig(plane.Admin)
		collector.Impersonate = rest.ImpersonationConfig{
			UserName: "system:serviceaccount:kube-system:generic-garbage-collector",
			Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:masters"},
		}
		for who, c := range map[string]client.Client{
			"its owner": owner, "an administrator": admin,
			"the garbage collector": framework.NewClient(collector),
		} {
			By(who)
			Expect(c.Delete(ctx, namespace.DeepCopy())).To(BeForbiddenBy("protection",
				`namespace "`+namespace.Name+`" is protected from deletion`,
				"kubectl label namespace "+namespace.Name+" nslifecycle.dev/deletion-protection-"))
		}
		// Two policies deny it.
		Expect(framework.NewClient(operator).Delete(ctx, namespace.DeepCopy())).To(Or(BeForbiddenBy("confine"), BeForbiddenBy("protection")))
		for how, options := range map[string][]client.DeleteOption{
			"a dry run": {client.DryRunAll}, "in the foreground": {client.PropagationPolicy(metav1.DeletePropagationForeground)},
			"without a grace period": {client.GracePeriodSeconds(0)}, "orphaning dependents": {client.PropagationPolicy(metav1.DeletePropagationOrphan)},
		} {
			By(how)
			Expect(owner.Delete(ctx, namespace.DeepCopy(), options...)).To(BeForbiddenBy("protection"))
		}
		expectKept(ctx, namespace)

		By("removing the label with the printed command")
		_, err = plane.Kubectl(ctx, ownerConfig, "label", "namespace", namespace.Name, "nslifecycle.dev/deletion-protection-")
		Expect(err).NotTo(HaveOccurred())
		Expect(owner.Delete(ctx, namespace)).To(Succeed())
	}, SpecTimeout(5*time.Minute))

	It("applies to any value of the label, even if the label is added later", func(ctx context.Context) {
		for _, value := range []string{"", "false", "disabled"} {
			namespace := create(ctx, owner, wrappers.MakeNamespace(unique("value")))
			patch := client.MergeFrom(namespace.DeepCopy())
			namespace.Labels[v1alpha1.LabelDeletionProtection] = value
			Expect(editor.Status().Patch(ctx, namespace, patch)).To(Succeed())
			Expect(owner.Delete(ctx, namespace)).To(BeForbiddenBy("protection"))
		}
	}, SpecTimeout(5*time.Minute))

	It("applies even if several namespaces are deleted at once", func(ctx context.Context) {
		namespace := create(ctx, owner, protected("collection"))
		clientset, err := kubernetes.NewForConfig(plane.Admin)
		Expect(err).NotTo(HaveOccurred())
		err = clientset.CoreV1().RESTClient().Delete().Resource("namespaces").
			Param("labelSelector", v1alpha1.LabelDeletionProtection).Do(ctx).Error()
		Expect(err).To(Satisfy(apierrors.IsMethodNotSupported))

		By("deleting the namespaces one after another with kubectl")
		other := create(ctx, owner, wrappers.MakeNamespace(unique("collection")))
		_, err = plane.Kubectl(ctx, ownerConfig, "delete", "namespace", namespace.Name, other.Name, "--wait=false")
		Expect(err).To(MatchError(ContainSubstring(`namespace "` + namespace.Name + `" is protected`)))
		Expect(get(Default, ctx, other.Name).DeletionTimestamp).NotTo(BeNil())
		expectKept(ctx, namespace)
	}, SpecTimeout(5*time.Minute))

	It("does not apply to namespaces without the label", func(ctx context.Context) {
		namespace := create(ctx, owner, wrappers.MakeNamespace(unique("free")).Label("deletion-protection", "enabled"))
		Expect(owner.Delete(ctx, namespace)).To(Succeed())
	}, SpecTimeout(5*time.Minute))

	It("does not block a deletion that has already started", func(ctx context.Context) {
		namespace := wrappers.MakeNamespace(unique("late")).Obj()
		namespace.Finalizers = []string{"test.example.com/hold"}
		Expect(owner.Create(ctx, namespace)).To(Succeed())
		Expect(owner.Delete(ctx, namespace)).To(Succeed())
		patch := client.RawPatch("application/merge-patch+json",
			[]byte(`{"metadata":{"labels":{"nslifecycle.dev/deletion-protection":"enabled"}}}`))
		Expect(owner.Patch(ctx, namespace, patch)).To(Succeed())
		Expect(namespace.Labels).To(HaveKey(v1alpha1.LabelDeletionProtection))

		By("sending the final DELETE after removing the namespace finalizers but not the metadata finalizers")
		clientset, err := kubernetes.NewForConfig(plane.Admin)
		Expect(err).NotTo(HaveOccurred())
		namespace.Spec.Finalizers = nil
		namespace, err = clientset.CoreV1().Namespaces().Finalize(ctx, namespace, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		// The API server skips admission of this DELETE only if spec.finalizers is not empty.
		Expect(owner.Delete(ctx, namespace.DeepCopy())).To(Succeed())
		Expect(owner.Patch(ctx, namespace, client.RawPatch("application/merge-patch+json",
			[]byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
		expectDeleted(ctx, namespace)

		By("finalizing a namespace with the operator")
		runManager(ctx, "finalization")
		namespace = create(ctx, owner, wrappers.MakeNamespace(unique("late")))
		Expect(admin.Create(ctx, wrappers.MakeConfigMap(namespace.Name, "content"))).To(Succeed())
		Expect(owner.Delete(ctx, namespace)).To(Succeed())
		expectDeleted(ctx, namespace)
	}, SpecTimeout(5*time.Minute))

	It("keeps a namespace whose initialization has failed, and reports this until the label is removed", func(ctx context.Context) {
		runManager(ctx, manager.Initialization)
		registerInitializer(ctx, "protection")
		namespace := create(ctx, owner, protected("failed"))
		Expect(namespace.Labels).To(And(HaveKey(v1alpha1.LabelInitializing), HaveKey(v1alpha1.LabelDeletionProtection)))
		fail(ctx, namespace)
		values := []string{"no budget", "not deleted",
			"run: kubectl label namespace " + namespace.Name + " nslifecycle.dev/deletion-protection-"}
		Eventually(get).WithContext(ctx).WithArguments(namespace.Name).
			Should(HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionFalse, v1alpha1.ReasonFailed, values...))
		Eventually(eventsAbout).WithContext(ctx).WithArguments(namespace).
			Should(ContainElement(And(HavePrefix("Warning InitializationFailed "),
				ContainSubstring(values[0]), ContainSubstring(values[1]), HaveSuffix(values[2]))))
		expectKept(ctx, namespace)

		By("removing the label")
		_, err := plane.Kubectl(ctx, ownerConfig, "label", "namespace", namespace.Name, "nslifecycle.dev/deletion-protection-")
		Expect(err).NotTo(HaveOccurred())
		Eventually(func(g Gomega) {
			g.Expect(get(g, ctx, namespace.Name).DeletionTimestamp).NotTo(BeNil())
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(5*time.Minute))
})

// eventsAbout returns the type, reason and note of each Event about a namespace. An Event that
// occurred n times is returned n times.
func eventsAbout(g Gomega, ctx context.Context, namespace *corev1.Namespace) []string {
	var list eventsv1.EventList
	g.Expect(admin.List(ctx, &list)).To(Succeed())
	var words []string
	for _, event := range list.Items {
		if event.Regarding.UID != namespace.UID {
			continue
		}
		times := 1
		if event.Series != nil {
			times = int(event.Series.Count)
		}
		for range times {
			words = append(words, event.Type+" "+event.Reason+" "+event.Note)
		}
	}
	return words
}

// registerInitializer registers an initializer until the end of the spec.
func registerInitializer(ctx context.Context, name string) {
	GinkgoHelper()
	configuration := wrappers.MakeConfiguration(name).Initializers("a.test.example.com").Obj()
	Expect(admin.Create(ctx, configuration)).To(Succeed())
	expectInjection := func(ctx context.Context, isInjected bool) {
		GinkgoHelper()
		Eventually(func(g Gomega) {
			probe := wrappers.MakeNamespace("probe").Obj()
			g.Expect(admin.Create(ctx, probe, client.DryRunAll)).To(Succeed())
			_, ok := probe.Labels[v1alpha1.LabelInitializing]
			g.Expect(ok).To(Equal(isInjected))
		}).WithContext(ctx).WithTimeout(time.Minute).Should(Succeed())
	}
	DeferCleanup(func(ctx context.Context) {
		Expect(admin.Delete(ctx, configuration)).To(Succeed())
		expectInjection(ctx, false) // The manager stops afterwards.
	})
	expectInjection(ctx, true)
}

// fail makes the initialization of a namespace fail.
func fail(ctx context.Context, namespace *corev1.Namespace) {
	GinkgoHelper()
	Expect(admin.Patch(ctx, namespace.DeepCopy(), client.RawPatch("application/merge-patch+json",
		[]byte(`{"metadata":{"annotations":{"nslifecycle.dev/initialization-result":"{\"status\":\"Failure\",\"message\":\"no budget\"}"}}}`)))).
		To(Succeed())
}
