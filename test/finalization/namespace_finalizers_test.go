// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// origin is the namespace finalizer in the example of the namespaces design proposal.
const origin corev1.FinalizerName = "openshift.com/origin"

// finalizerOwner is a controller that owns an entry of spec.finalizers.
type finalizerOwner struct {
	finalizer corev1.FinalizerName
	config    *rest.Config
	writes    requestRecorder
}

func (p *finalizerOwner) start(ctx context.Context) *controlplane.Manager {
	GinkgoHelper()
	return startManager(ctx, p.writes.record(p.config), withNamespaceFinalizer(p.finalizer))
}

var _ = Describe("The namespace in the example of the design proposal", func() {
	var (
		openshift, upstream *finalizerOwner
		namespace           *corev1.Namespace
		held                *corev1.ConfigMap
		observed            *framework.History
	)

	BeforeEach(func(ctx context.Context) {
		stopManager()
		openshift = &finalizerOwner{finalizer: origin, config: serviceAccountConfig(ctx, "origin", origin)}
		upstream = &finalizerOwner{finalizer: corev1.FinalizerKubernetes, config: managerConfig(ctx)}

		By("creating a namespace with two namespace finalizers")
		namespace = wrappers.MakeNamespace("development").Label("name", "development").Obj()
		namespace.Spec.Finalizers = []corev1.FinalizerName{origin, corev1.FinalizerKubernetes}
		create(ctx, namespace)
		DeferCleanup(func(ctx context.Context) { expectDeleted(ctx, namespace) })
		Expect(get(Default, ctx, namespace.Name)).To(And(BeActive(), HaveNamespaceFinalizers(origin, corev1.FinalizerKubernetes), HaveNoFinalizationConditions()))
		observed = framework.WatchNamespace(ctx, plane.Admin, namespace)
		create(ctx, makeConfigMaps(namespace.Name, "a", "b")...)
		held = withFinalizer(wrappers.MakeConfigMap(namespace.Name, "held"))
		create(ctx, held)

		By("deleting the namespace while no controller runs")
		deleteObject(ctx, namespace)
		consistentlyNamespace(ctx, namespace.Name, BeTerminating(), HaveNamespaceFinalizers(origin, corev1.FinalizerKubernetes), HaveNoFinalizationConditions())
		Expect(countOf(Default, ctx, configMaps, namespace.Name)).To(Equal(3))
	}, NodeTimeout(5*time.Minute))

	// finishInTurn lets one controller finish before the other, as in the proposal.
	finishInTurn := func(ctx context.Context, first, second *finalizerOwner) {
		By("starting the first controller, which is blocked by a finalizer")
		running := first.start(ctx)
		eventuallyNamespace(ctx, namespace.Name,
			HaveRemaining("configmaps. has 1 resource instances"),
			HaveFinalizersRemaining(testFinalizer+" in 1 resource instances"))
		consistentlyNamespace(ctx, namespace.Name, BeTerminating(), HaveNamespaceFinalizers(origin, corev1.FinalizerKubernetes),
			HaveRemaining("configmaps. has 1 resource instances"))
		Expect(countOf(Default, ctx, configMaps, namespace.Name)).To(Equal(1))

		By("letting the first controller finish, and checking that it keeps the other namespace finalizer")
		removeFinalizers(ctx, held)
		eventuallyNamespace(ctx, namespace.Name, HaveNamespaceFinalizers(second.finalizer))
		consistentlyNamespace(ctx, namespace.Name, BeTerminating(), HaveNamespaceFinalizers(second.finalizer), HaveContentRemoved())
		Expect(get(Default, ctx, namespace.Name).Labels).To(HaveKeyWithValue("name", "development"))
		Expect(countOf(Default, ctx, configMaps, namespace.Name)).To(BeZero())

		By("letting the other controller finish")
		if second == upstream {
			Expect(running.Stop()).To(Succeed())
		}
		second.start(ctx)
		expectDeleted(ctx, namespace)
		observed.WaitForRemoval(ctx)

		By("checking the history")
		all := "[" + string(origin) + " " + string(corev1.FinalizerKubernetes) + "]"
		Expect(namespaceFinalizers(observed.States())).To(HaveExactElements(all, "["+string(second.finalizer)+"]"))
		content := "/namespaces/" + namespace.Name + "/"
		Expect(first.writes.matching(content+"configmaps")).To(ConsistOf(
			"DELETE /api/v1"+content+"configmaps/a (1)", "DELETE /api/v1"+content+"configmaps/b (1)",
			"DELETE /api/v1"+content+"configmaps/held (1)"), "the first controller must delete each object once")
		Expect(second.writes.matching(content+"configmaps")).To(BeEmpty(), "no objects must remain for the second controller")
		Expect(first.writes.matching(content + "finalize")).To(HaveLen(1))
		Expect(second.writes.matching(content + "finalize")).To(HaveLen(1))
	}

	It("is finalized if Kubernetes finishes before OpenShift", func(ctx context.Context) {
		finishInTurn(ctx, upstream, openshift)
	}, SpecTimeout(5*time.Minute))

	It("is finalized if OpenShift finishes before Kubernetes", func(ctx context.Context) {
		finishInTurn(ctx, openshift, upstream)
	}, SpecTimeout(5*time.Minute))

	It("is finalized if both controllers run concurrently", func(ctx context.Context) {
		openshift.start(ctx)
		upstream.start(ctx)
		eventuallyNamespace(ctx, namespace.Name, HaveRemaining("configmaps. has 1 resource instances"))
		consistentlyNamespace(ctx, namespace.Name, BeTerminating(), HaveNamespaceFinalizers(origin, corev1.FinalizerKubernetes),
			HaveRemaining("configmaps. has 1 resource instances"))
		removeFinalizers(ctx, held)
		expectDeleted(ctx, namespace)
		observed.WaitForRemoval(ctx)
		all := "[" + string(origin) + " " + string(corev1.FinalizerKubernetes) + "]"
		Expect(namespaceFinalizers(observed.States())).To(Or(HaveExactElements(all, "["+string(origin)+"]"),
			HaveExactElements(all, "["+string(corev1.FinalizerKubernetes)+"]")))
	}, SpecTimeout(5*time.Minute))

	It("is finalized after a controller restarts", func(ctx context.Context) {
		running := openshift.start(ctx)
		eventuallyNamespace(ctx, namespace.Name, HaveRemaining("configmaps. has 1 resource instances"))

		By("stopping OpenShift before it finishes, and letting Kubernetes finish")
		Expect(running.Stop()).To(Succeed())
		upstream.start(ctx)
		removeFinalizers(ctx, held)
		eventuallyNamespace(ctx, namespace.Name, HaveNamespaceFinalizers(origin))
		consistentlyNamespace(ctx, namespace.Name, BeTerminating(), HaveNamespaceFinalizers(origin), HaveContentRemoved())
		Expect(openshift.writes.matching("/" + namespace.Name + "/finalize")).To(BeEmpty())

		By("starting OpenShift again")
		openshift.start(ctx)
		expectDeleted(ctx, namespace)
		Expect(openshift.writes.matching("/" + namespace.Name + "/finalize")).To(HaveLen(1))
	}, SpecTimeout(5*time.Minute))
})

var _ = Describe("A controller whose namespace finalizer is not in the namespace", func() {
	It("does not change the namespace", func(ctx context.Context) {
		stopManager()
		unrelated := &finalizerOwner{finalizer: "example.com/unrelated"}
		unrelated.config = serviceAccountConfig(ctx, "unrelated", unrelated.finalizer)
		own := createNamespace(ctx, "own", unrelated.finalizer)
		other := createNamespace(ctx, "other", origin)
		objects := makeConfigMaps(other.Name, "a", "b")
		create(ctx, objects...)
		deleteObject(ctx, other)
		unrelated.start(ctx)

		before := get(Default, ctx, other.Name)
		expectKept(ctx, objects...)
		Expect(get(Default, ctx, other.Name)).To(Equal(before))
		Expect(unrelated.writes.matching(other.Name)).To(BeEmpty())

		By("checking that the controller finalizes other namespaces")
		deleteObject(ctx, own)
		eventuallyNamespace(ctx, own.Name, HaveNamespaceFinalizers(corev1.FinalizerKubernetes), HaveContentRemoved())
		finalize(ctx, own.Name)
		expectDeleted(ctx, own)
		Expect(get(Default, ctx, other.Name)).To(Equal(before))

		removeAll(ctx, configMaps, other.Name)
		finalize(ctx, other.Name)
		expectDeleted(ctx, other)
	}, SpecTimeout(5*time.Minute))
})
