// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/initializers"
	"github.com/nslifecycle/nslifecycle/test/matchers"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// Initializers that nobody runs: the specs do their work.
const (
	quota  = "quota.test.example.com"
	policy = "policy.test.example.com"
	// late is one that nobody does the work of.
	late = "late.test.example.com"
	// configMaps are in each namespace that is to end well.
	configMaps = 3
)

// register puts two initializers in force.
func register(ctx context.Context) {
	GinkgoHelper()
	configuration := wrappers.MakeConfiguration("test").Initializers(quota, policy).Obj()
	Expect(admin.Create(ctx, configuration)).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(configuration), configuration)).To(Succeed())
		g.Expect(meta.IsStatusConditionTrue(configuration.Status.Conditions, v1alpha1.ConditionActive)).To(BeTrue())
	}).WithContext(ctx).Should(Succeed())
}

// overrule leads namespaces through a time-out with each policy, and through a deregistration.
// The configuration for that is gone in the end.
func overrule(ctx context.Context, prefix string) {
	GinkgoHelper()
	name := func(suffix string) string { return prefix + "-" + suffix }
	configuration := wrappers.MakeConfiguration("test-" + prefix).Initializers(late).Obj()
	change := func(seconds *int32, failurePolicy v1alpha1.InitializerFailurePolicy) {
		configuration.Initializers[0].TimeoutSeconds = seconds
		configuration.Initializers[0].FailurePolicy = nil
		if seconds != nil {
			configuration.Initializers[0].FailurePolicy = &failurePolicy
		}
	}
	activate := func() {
		Eventually(func(g Gomega) {
			g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(configuration), configuration)).To(Succeed())
			active := meta.FindStatusCondition(configuration.Status.Conditions, v1alpha1.ConditionActive)
			g.Expect(active).NotTo(BeNil())
			g.Expect(active.Status).To(Equal(metav1.ConditionTrue))
			g.Expect(active.ObservedGeneration).To(Equal(configuration.Generation))
		}).WithContext(ctx).Should(Succeed())
	}
	update := func(seconds *int32, failurePolicy v1alpha1.InitializerFailurePolicy) {
		Eventually(func() error {
			if err := admin.Get(ctx, client.ObjectKeyFromObject(configuration), configuration); err != nil {
				return err
			}
			change(seconds, failurePolicy)
			return admin.Update(ctx, configuration)
		}).WithContext(ctx).Should(Succeed())
		activate()
	}
	change(ptr.To[int32](1), v1alpha1.InitializerIgnore)
	Expect(admin.Create(ctx, configuration)).To(Succeed())
	activate()
	isOpen := matchers.HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionFalse, v1alpha1.ReasonCompleted)

	By("going on without an initializer whose time is over")
	begun(ctx, name("skipped"))
	finishBoth(ctx, name("skipped"))
	eventually(ctx, name("skipped"), isOpen)

	By("failing because the time is over")
	update(ptr.To[int32](1), v1alpha1.InitializerFail)
	begun(ctx, name("expired"))
	finishBoth(ctx, name("expired"))
	expectGone(ctx, name("expired"))

	By("going on without an initializer that is registered no more")
	update(nil, "")
	begun(ctx, name("dropped"))
	finishBoth(ctx, name("dropped"))
	Expect(admin.Delete(ctx, configuration)).To(Succeed())
	eventually(ctx, name("dropped"), isOpen)
}

// liveAndDie leads namespaces through each life that there is, and leaves one waiting for an
// initializer and one blocked in its end. The names begin with the prefix.
func liveAndDie(ctx context.Context, prefix string) {
	GinkgoHelper()
	name := func(suffix string) string { return prefix + "-" + suffix }
	overrule(ctx, prefix)

	By("completing an initialization, and deleting the namespace")
	beOpen(ctx, name("completed"))
	for i := range configMaps {
		Expect(admin.Create(ctx, wrappers.MakeConfigMap(name("completed"), fmt.Sprint("c", i)))).To(Succeed())
	}
	begin := time.Now()
	remove(ctx, name("completed"))
	expectGone(ctx, name("completed"))
	AddReportEntry("the end took", time.Since(begin).String())

	By("failing")
	begun(ctx, name("failed"))
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`,
		v1alpha1.AnnotationInitializationResult, `{"status":"Failure","message":"no budget"}`)
	Expect(admin.Patch(ctx, wrappers.MakeNamespace(name("failed")).Obj(),
		client.RawPatch("application/merge-patch+json", []byte(patch)))).To(Succeed())
	expectGone(ctx, name("failed"))

	By("deleting a namespace that waits")
	begun(ctx, name("deleted"))
	remove(ctx, name("deleted"))
	expectGone(ctx, name("deleted"))

	By("ending a namespace by somebody else's hand")
	beOpen(ctx, name("overtaken"))
	hold(ctx, name("overtaken"))
	remove(ctx, name("overtaken"))
	eventually(ctx, name("overtaken"), matchers.HaveCondition(corev1.NamespaceContentRemaining, corev1.ConditionTrue,
		"SomeResourcesRemain"))
	takeTokens(ctx, name("overtaken"))
	expectGone(ctx, name("overtaken"))

	By("ending a namespace that has no token")
	beOpen(ctx, name("tokenless"))
	takeTokens(ctx, name("tokenless"))
	remove(ctx, name("tokenless"))
	expectGone(ctx, name("tokenless"))

	By("getting on after a while")
	begun(ctx, name("late"))
	eventually(ctx, name("late"), isBlocked(v1alpha1.ConditionInitializationBlocked, corev1.ConditionTrue))
	finishBoth(ctx, name("late"))
	eventually(ctx, name("late"), isBlocked(v1alpha1.ConditionInitializationBlocked, corev1.ConditionFalse))

	By("leaving one that waits, in vain for a stranger, and one that is blocked")
	begun(ctx, name("waiting"))
	intrude(ctx, name("waiting"))
	eventually(ctx, name("waiting"), isBlocked(v1alpha1.ConditionInitializationBlocked, corev1.ConditionTrue))
	beOpen(ctx, name("blocked"))
	hold(ctx, name("blocked"))
	remove(ctx, name("blocked"))
	eventually(ctx, name("blocked"), isBlocked(v1alpha1.ConditionDeletionBlocked, corev1.ConditionTrue))
}

// intrude has the gate refuse a write of somebody who is no initializer.
func intrude(ctx context.Context, name string) {
	GinkgoHelper()
	config := rest.AnonymousClientConfig(plane.Admin)
	config.BearerToken = stranger
	intruder, err := controlplane.NewClient(config)
	Expect(err).NotTo(HaveOccurred())
	Expect(intruder.Create(ctx, wrappers.MakeConfigMap(name, "early"))).
		To(MatchError(ContainSubstring("'nslifecycle-gate'")))
}

// begun creates a namespace, and waits until the manager has taken notice of it.
func begun(ctx context.Context, name string) {
	GinkgoHelper()
	Expect(admin.Create(ctx, wrappers.MakeNamespace(name).Obj())).To(Succeed())
	eventually(ctx, name, matchers.HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionTrue,
		v1alpha1.ReasonPending))
}

// beOpen creates a namespace and does the work of its initializers.
func beOpen(ctx context.Context, name string) {
	GinkgoHelper()
	begun(ctx, name)
	finishBoth(ctx, name)
	eventually(ctx, name, matchers.HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionFalse,
		v1alpha1.ReasonCompleted))
}

func finishBoth(ctx context.Context, name string) {
	GinkgoHelper()
	finish(ctx, name, quota)
	// The manager sees each turn: two patches at once may be one news.
	eventually(ctx, name, matchers.HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionTrue,
		v1alpha1.ReasonPending, policy))
	finish(ctx, name, policy)
}

func finish(ctx context.Context, name, initializer string) {
	GinkgoHelper()
	Eventually(func() error {
		namespace, err := clientset().CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return initializers.Finish(ctx, clientset(), namespace, initializer)
	}).WithContext(ctx).Should(Succeed())
}

func clientset() kubernetes.Interface {
	GinkgoHelper()
	result, err := kubernetes.NewForConfig(controlplane.Unlimited(plane.Admin))
	Expect(err).NotTo(HaveOccurred())
	return result
}

// hold puts an object into a namespace that does not go, since nobody takes its finalizer off.
func hold(ctx context.Context, name string) {
	GinkgoHelper()
	held := wrappers.MakeConfigMap(name, "held")
	held.Finalizers = []string{"test.example.com/hold"}
	Expect(admin.Create(ctx, held)).To(Succeed())
}

func remove(ctx context.Context, name string) {
	GinkgoHelper()
	Expect(admin.Delete(ctx, wrappers.MakeNamespace(name).Obj())).To(Succeed())
}

// takeTokens releases all tokens of a namespace.
func takeTokens(ctx context.Context, name string) {
	GinkgoHelper()
	Eventually(func() error {
		namespace, err := clientset().CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		namespace.Spec.Finalizers = nil
		_, err = clientset().CoreV1().Namespaces().Finalize(ctx, namespace, metav1.UpdateOptions{})
		return err
	}).WithContext(ctx).Should(Succeed())
}

// isBlocked matches a namespace with one of the conditions of diagnosis, whatever the cause.
func isBlocked(conditionType corev1.NamespaceConditionType, status corev1.ConditionStatus) types.GomegaMatcher {
	return Satisfy(func(namespace *corev1.Namespace) bool {
		condition := nscondition.Find(namespace, conditionType)
		return condition != nil && condition.Status == status
	})
}

func eventually(ctx context.Context, name string, matcher types.GomegaMatcher) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		namespace, err := clientset().CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(namespace).To(matcher)
	}).WithContext(ctx).Should(Succeed())
}

func expectGone(ctx context.Context, name string) {
	GinkgoHelper()
	Eventually(func() bool {
		return apierrors.IsNotFound(admin.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{}))
	}).WithContext(ctx).Should(BeTrue())
}
