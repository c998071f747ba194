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
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// origin is the token of the example in the design proposal of namespaces.
const origin corev1.FinalizerName = "openshift.com/origin"

// party is one of those who have a token on the namespace.
type party struct {
	token  corev1.FinalizerName
	config *rest.Config
	writes writes
}

func (p *party) start(ctx context.Context) *controlplane.Manager {
	GinkgoHelper()
	return startOther(ctx, p.writes.record(p.config), withToken(p.token))
}

var _ = Describe("The example of the design proposal", func() {
	var (
		openshift, upstream *party
		namespace           *corev1.Namespace
		held                *corev1.ConfigMap
		past                *history
	)

	BeforeEach(func(ctx context.Context) {
		stopManager()
		openshift = &party{token: origin, config: agentConfig(ctx, "origin")}
		upstream = &party{token: kubernetesToken, config: managerConfig(ctx)}

		By("creating the namespace as OpenShift does")
		namespace = wrappers.MakeNamespace("development").Label("name", "development").Obj()
		namespace.Spec.Finalizers = []corev1.FinalizerName{origin, kubernetesToken}
		create(ctx, namespace)
		DeferCleanup(func(ctx context.Context) { expectGone(ctx, namespace) })
		Expect(get(Default, ctx, namespace.Name)).To(And(BeActive(), HaveTokens(origin, kubernetesToken), HaveNoVerdict()))
		past = watchNamespace(context.WithoutCancel(ctx), namespace)
		create(ctx, settings(namespace.Name, "a", "b")...)
		held = hold(wrappers.MakeConfigMap(namespace.Name, "held"))
		create(ctx, held)

		By("deleting it while no controller runs")
		deleteObject(ctx, namespace)
		consistentlyNamespace(ctx, namespace.Name, BeTerminating(), HaveTokens(origin, kubernetesToken), HaveNoVerdict())
		Expect(countOf(Default, ctx, configMaps, namespace.Name)).To(Equal(3))
	}, NodeTimeout(time.Minute))

	// one party after the other; the names are those of the states in the proposal.
	finishInTurn := func(ctx context.Context, first, second *party) {
		By("letting the first one begin, which cannot finish because of a finalizer")
		running := first.start(ctx)
		eventuallyNamespace(ctx, namespace.Name,
			HaveRemaining("configmaps. has 1 resource instances"),
			HaveFinalizersRemaining(testFinalizer+" in 1 resource instances"))
		consistentlyNamespace(ctx, namespace.Name, BeTerminating(), HaveTokens(origin, kubernetesToken),
			HaveRemaining("configmaps. has 1 resource instances"))
		Expect(countOf(Default, ctx, configMaps, namespace.Name)).To(Equal(1))

		By("letting it finish, which leaves the other namespace finalizer")
		release(ctx, held)
		eventuallyNamespace(ctx, namespace.Name, HaveTokens(second.token))
		consistentlyNamespace(ctx, namespace.Name, BeTerminating(), HaveTokens(second.token), HaveNothingLeft())
		Expect(get(Default, ctx, namespace.Name).Labels).To(HaveKeyWithValue("name", "development"))
		Expect(countOf(Default, ctx, configMaps, namespace.Name)).To(BeZero())

		By("letting the other finish as well")
		if second == upstream {
			Expect(running.Stop()).To(Succeed())
		}
		second.start(ctx)
		expectGone(ctx, namespace)
		Eventually(past.gone).WithContext(ctx).Should(BeClosed())

		By("checking the history")
		all := "[" + string(origin) + " " + string(kubernetesToken) + "]"
		Expect(past.tokens()).To(HaveExactElements(all, "["+string(second.token)+"]"))
		content := "/namespaces/" + namespace.Name + "/"
		Expect(first.writes.about(content+"configmaps")).To(ConsistOf(
			"DELETE /api/v1"+content+"configmaps/a (1)", "DELETE /api/v1"+content+"configmaps/b (1)",
			"DELETE /api/v1"+content+"configmaps/held (1)"), "each object is deleted once")
		Expect(second.writes.about(content+"configmaps")).To(BeEmpty(), "there was nothing left to delete")
		Expect(first.writes.about(content + "finalize")).To(HaveLen(1))
		Expect(second.writes.about(content + "finalize")).To(HaveLen(1))
	}

	It("ends when Kubernetes is done before OpenShift", func(ctx context.Context) {
		finishInTurn(ctx, upstream, openshift)
	}, SpecTimeout(time.Minute))

	It("ends when OpenShift is done before Kubernetes", func(ctx context.Context) {
		finishInTurn(ctx, openshift, upstream)
	}, SpecTimeout(time.Minute))

	It("ends when both are at work at the same time", func(ctx context.Context) {
		openshift.start(ctx)
		upstream.start(ctx)
		eventuallyNamespace(ctx, namespace.Name, HaveRemaining("configmaps. has 1 resource instances"))
		consistentlyNamespace(ctx, namespace.Name, BeTerminating(), HaveTokens(origin, kubernetesToken),
			HaveRemaining("configmaps. has 1 resource instances"))
		release(ctx, held)
		expectGone(ctx, namespace)
		Eventually(past.gone).WithContext(ctx).Should(BeClosed())
		all := "[" + string(origin) + " " + string(kubernetesToken) + "]"
		Expect(past.tokens()).To(Or(HaveExactElements(all, "["+string(origin)+"]"),
			HaveExactElements(all, "["+string(kubernetesToken)+"]")))
	}, SpecTimeout(time.Minute))

	It("continues after a controller restarts", func(ctx context.Context) {
		running := openshift.start(ctx)
		eventuallyNamespace(ctx, namespace.Name, HaveRemaining("configmaps. has 1 resource instances"))

		By("stopping OpenShift before it is done, and letting Kubernetes finish")
		Expect(running.Stop()).To(Succeed())
		upstream.start(ctx)
		release(ctx, held)
		eventuallyNamespace(ctx, namespace.Name, HaveTokens(origin))
		consistentlyNamespace(ctx, namespace.Name, BeTerminating(), HaveTokens(origin), HaveNothingLeft())
		Expect(openshift.writes.about("/" + namespace.Name + "/finalize")).To(BeEmpty())

		By("starting OpenShift again")
		openshift.start(ctx)
		expectGone(ctx, namespace)
		Expect(openshift.writes.about("/" + namespace.Name + "/finalize")).To(HaveLen(1))
	}, SpecTimeout(time.Minute))
})

var _ = Describe("A controller whose namespace finalizer is not set", func() {
	It("does nothing", func(ctx context.Context) {
		stopManager()
		stranger := &party{token: "example.com/stranger", config: agentConfig(ctx, "stranger")}
		mine := createNamespace(ctx, "stranger", stranger.token)
		others := createNamespace(ctx, "strange", origin)
		objects := settings(others.Name, "a", "b")
		create(ctx, objects...)
		deleteObject(ctx, others)
		stranger.start(ctx)

		before := get(Default, ctx, others.Name)
		expectKept(ctx, objects...)
		Expect(get(Default, ctx, others.Name)).To(Equal(before))
		Expect(stranger.writes.about(others.Name)).To(BeEmpty())

		By("checking that it finalizes other namespaces")
		deleteObject(ctx, mine)
		eventuallyNamespace(ctx, mine.Name, HaveTokens(kubernetesToken), HaveNothingLeft())
		finalize(ctx, mine.Name)
		expectGone(ctx, mine)
		Expect(get(Default, ctx, others.Name)).To(Equal(before))

		removeAll(ctx, configMaps, others.Name)
		finalize(ctx, others.Name)
		expectGone(ctx, others)
	}, SpecTimeout(time.Minute))
})
