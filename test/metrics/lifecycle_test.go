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
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/initializers"
	"github.com/nslifecycle/nslifecycle/test/matchers"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// The specs act as these initializers.
const (
	quota  = "quota.test.example.com"
	policy = "policy.test.example.com"
	// late is an initializer that never runs.
	late = "late.test.example.com"
	// configMaps is the number of ConfigMaps in each namespace whose name ends with "completed".
	configMaps = 3
)

// register registers two initializers and waits until the configuration is active.
func register(ctx context.Context) {
	GinkgoHelper()
	configuration := wrappers.MakeConfiguration("test").Initializers(quota, policy).Obj()
	Expect(admin.Create(ctx, configuration)).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(configuration), configuration)).To(Succeed())
		g.Expect(meta.IsStatusConditionTrue(configuration.Status.Conditions, v1alpha1.ConditionActive)).To(BeTrue())
	}).WithContext(ctx).Should(Succeed())
}

// registerTemplate creates a template, and waits until the API server selects new namespaces with it.
func registerTemplate(ctx context.Context) {
	GinkgoHelper()
	Eventually(func() error {
		_, err := plane.KubectlWithInput(
			ctx, plane.Admin, readFile("test", "metrics", "testdata", "template.yaml"), "apply", "--filename=-")
		return err
	}).WithContext(ctx).Should(Succeed())
	Eventually(func(g Gomega) {
		probe := wrappers.MakeNamespace("probe").Label("team", "true").Obj()
		g.Expect(admin.Create(ctx, probe, client.DryRunAll)).To(Succeed())
		g.Expect(framework.PendingOf(probe)).To(ContainSubstring(v1alpha1.TemplatesInitializer))
	}).WithContext(ctx).Should(Succeed())
}

// applyTemplate creates a namespace with the template, and changes the object of the template until the
// operator reports a conflict.
func applyTemplate(ctx context.Context, name string) {
	GinkgoHelper()
	namespace := wrappers.MakeNamespace(name).Label("team", "true").Obj()
	Expect(admin.Create(ctx, namespace)).To(Succeed())
	finishAll(ctx, name)
	key := client.ObjectKey{Name: "team"}
	template := &v1alpha1.NamespaceTemplate{}
	Eventually(func(g Gomega) {
		settings := wrappers.MakeConfigMap(name, "settings")
		settings.Data = map[string]string{"team": "other"}
		g.Expect(admin.Update(ctx, settings)).To(Succeed())
		g.Expect(admin.Get(ctx, key, template)).To(Succeed())
		g.Expect(template.Status.Namespaces).NotTo(BeNil())
		g.Expect(template.Status.Namespaces.Conflicted).To(BeEquivalentTo(1))
	}).WithContext(ctx).Should(Succeed())
	remove(ctx, name)
	expectDeleted(ctx, name)
	Eventually(func(g Gomega) {
		g.Expect(admin.Get(ctx, key, template)).To(Succeed())
		g.Expect(template.Status.Namespaces.Selected).To(BeZero())
	}).WithContext(ctx).Should(Succeed())
}

// skipLateInitializer creates namespaces whose initializer times out under each failure policy,
// and one whose initializer is deregistered. It deletes its configuration afterwards.
func skipLateInitializer(ctx context.Context, prefix string) {
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
	isInitialized := matchers.HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionFalse, v1alpha1.ReasonCompleted)

	By("skipping an initializer that timed out")
	startInitialization(ctx, name("skipped"))
	finishAll(ctx, name("skipped"))
	eventually(ctx, name("skipped"), isInitialized)

	By("failing an initialization that timed out")
	update(ptr.To[int32](1), v1alpha1.InitializerFail)
	startInitialization(ctx, name("expired"))
	finishAll(ctx, name("expired"))
	expectDeleted(ctx, name("expired"))

	By("skipping a deregistered initializer")
	update(nil, "")
	startInitialization(ctx, name("deregistered"))
	finishAll(ctx, name("deregistered"))
	Expect(admin.Delete(ctx, configuration)).To(Succeed())
	eventually(ctx, name("deregistered"), isInitialized)
}

// runLifecycles creates a namespace for each outcome of initialization and finalization. Two of the
// namespaces remain: one waits for an initializer, and the deletion of the other is blocked.
func runLifecycles(ctx context.Context, prefix string) {
	GinkgoHelper()
	name := func(suffix string) string { return prefix + "-" + suffix }
	skipLateInitializer(ctx, prefix)

	By("applying a template")
	applyTemplate(ctx, name("templated"))

	By("completing an initialization, and deleting the namespace")
	initialize(ctx, name("completed"))
	for i := range configMaps {
		Expect(admin.Create(ctx, wrappers.MakeConfigMap(name("completed"), fmt.Sprint("c", i)))).To(Succeed())
	}
	begin := time.Now()
	remove(ctx, name("completed"))
	expectDeleted(ctx, name("completed"))
	AddReportEntry("deletion took", time.Since(begin).String())

	By("failing an initialization")
	startInitialization(ctx, name("failed"))
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`,
		v1alpha1.AnnotationInitializationResult, `{"status":"Failure","message":"no budget"}`)
	Expect(admin.Patch(ctx, wrappers.MakeNamespace(name("failed")).Obj(),
		client.RawPatch("application/merge-patch+json", []byte(patch)))).To(Succeed())
	expectDeleted(ctx, name("failed"))

	By("deleting an initializing namespace")
	startInitialization(ctx, name("deleted"))
	remove(ctx, name("deleted"))
	expectDeleted(ctx, name("deleted"))

	By("finalizing a namespace as another controller")
	initialize(ctx, name("overtaken"))
	hold(ctx, name("overtaken"))
	remove(ctx, name("overtaken"))
	eventually(ctx, name("overtaken"), matchers.HaveCondition(corev1.NamespaceContentRemaining, corev1.ConditionTrue,
		"SomeResourcesRemain"))
	removeNamespaceFinalizers(ctx, name("overtaken"))
	expectDeleted(ctx, name("overtaken"))

	By("deleting a namespace without namespace finalizers")
	initialize(ctx, name("unfinalized"))
	removeNamespaceFinalizers(ctx, name("unfinalized"))
	remove(ctx, name("unfinalized"))
	expectDeleted(ctx, name("unfinalized"))

	By("completing a blocked initialization")
	startInitialization(ctx, name("late"))
	eventually(ctx, name("late"), isBlocked(v1alpha1.ConditionInitializationBlocked, corev1.ConditionTrue))
	finishAll(ctx, name("late"))
	eventually(ctx, name("late"), isBlocked(v1alpha1.ConditionInitializationBlocked, corev1.ConditionFalse))

	By("creating the namespaces that remain: one is initializing, and the deletion of the other is blocked")
	startInitialization(ctx, name("waiting"))
	writeEarly(ctx, name("waiting"))
	eventually(ctx, name("waiting"), isBlocked(v1alpha1.ConditionInitializationBlocked, corev1.ConditionTrue))
	initialize(ctx, name("blocked"))
	hold(ctx, name("blocked"))
	remove(ctx, name("blocked"))
	// The first diagnosis can precede the conditions of the finalization, and report another cause.
	eventually(ctx, name("blocked"), matchers.HaveCondition(v1alpha1.ConditionDeletionBlocked, corev1.ConditionTrue, "FinalizerPending"))
}

// writeEarly attempts a write that the gate must reject, as a user without the `initialize` verb.
func writeEarly(ctx context.Context, name string) {
	GinkgoHelper()
	config := rest.AnonymousClientConfig(plane.Admin)
	config.BearerToken = unauthorized
	writer, err := controlplane.NewClient(config)
	Expect(err).NotTo(HaveOccurred())
	Expect(writer.Create(ctx, wrappers.MakeConfigMap(name, "early"))).
		To(MatchError(ContainSubstring("'nslifecycle-gate'")))
}

// startInitialization creates a namespace and waits until its initialization is pending.
func startInitialization(ctx context.Context, name string) {
	GinkgoHelper()
	Expect(admin.Create(ctx, wrappers.MakeNamespace(name).Obj())).To(Succeed())
	eventually(ctx, name, matchers.HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionTrue,
		v1alpha1.ReasonPending))
}

// initialize creates a namespace and completes its initialization.
func initialize(ctx context.Context, name string) {
	GinkgoHelper()
	startInitialization(ctx, name)
	finishAll(ctx, name)
	eventually(ctx, name, matchers.HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionFalse,
		v1alpha1.ReasonCompleted))
}

func finishAll(ctx context.Context, name string) {
	GinkgoHelper()
	finish(ctx, name, quota)
	// Wait for the condition, since two patches in quick succession can result in one watch event.
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

// hold creates an object with a finalizer that no controller removes.
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

// removeNamespaceFinalizers removes all entries of spec.finalizers.
func removeNamespaceFinalizers(ctx context.Context, name string) {
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

// isBlocked matches a namespace that has a diagnosis condition with the given type and status,
// regardless of the cause.
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

func expectDeleted(ctx context.Context, name string) {
	GinkgoHelper()
	Eventually(func() bool {
		return apierrors.IsNotFound(admin.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{}))
	}).WithContext(ctx).Should(BeTrue())
}
