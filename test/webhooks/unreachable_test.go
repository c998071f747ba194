// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"net"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/faults"
	"github.com/nslifecycle/nslifecycle/test/framework/matchers"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// unreachableCost is what a webhook may cost a write if a firewall drops its packets, and the time for the rest of the
// request on a busy machine. It is less than the default timeout of the API server, which is 10 s.
const unreachableCost = 6 * time.Second

// haveShortTimeout matches webhooks that cost a write at most 2 s.
var haveShortTimeout = HaveField("TimeoutSeconds", HaveValue(BeNumerically("<=", 2)))

// startManagerBehind runs the manager until the spec or the container ends. The API server reaches its webhooks through
// the proxy that is returned.
func startManagerBehind(ctx context.Context) (proxy *faults.TCPProxy, url string) {
	GinkgoHelper()
	behind, err := controlplane.HoldOptions()
	Expect(err).NotTo(HaveOccurred())
	_, port, err := net.SplitHostPort(behind.Address)
	Expect(err).NotTo(HaveOccurred())
	proxy, err = faults.StartTCPProxy("127.0.0.1:" + port)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(proxy.Stop)
	_, port, err = net.SplitHostPort(proxy.Address())
	Expect(err).NotTo(HaveOccurred())
	behind.URL = "https://localhost:" + port
	cluster.StartManager(ctx, func(o *manager.Options) { o.Hold = behind })
	DeferCleanup(cluster.StopManager)
	return proxy, behind.URL
}

var _ = Describe("Webhooks behind a firewall that drops packets", Ordered, func() {
	var proxy *faults.TCPProxy

	BeforeAll(func(ctx context.Context) {
		cluster.StopManager()
		DeferCleanup(restartManager)
		var url string
		proxy, url = startManagerBehind(ctx)
		Expect(cluster.WaitForHold(ctx, url)).To(Succeed())
	}, NodeTimeout(5*time.Minute))

	It("cost an early write at most 2 s, and hold writes again later", func(ctx context.Context) {
		namespace := cluster.CreateInitializing(ctx, "dropped")
		isHeld := func() error { return createOnce(ctx, cluster.Ordinary, namespace.Name, "held").Err }
		Eventually(isHeld).WithContext(ctx).Should(Satisfy(apierrors.IsTooManyRequests))
		proxy.Drop(true)
		DeferCleanup(func() { proxy.Drop(false) })
		By("making the webhooks select no requests, after one probe")
		begin := time.Now()
		Eventually(func(g Gomega) {
			got := createOnce(ctx, cluster.Ordinary, namespace.Name, "dropped")
			AddReportEntry("an early write", got.Duration.String())
			g.Expect(got.Err).To(matchers.BeForbiddenBy("gate"))
			g.Expect(got.Duration).To(BeNumerically("<", unreachableCost))
		}).WithContext(ctx).Should(Succeed())
		AddReportEntry("it costs no more", time.Since(begin).String())
		for range 10 {
			got := createOnce(ctx, cluster.Ordinary, namespace.Name, "dropped")
			Expect(got.Err).To(matchers.BeForbiddenBy("gate"))
			Expect(got.Duration).To(BeNumerically("<", unreachableCost))
		}
		By("selecting them when they answer")
		proxy.Drop(false)
		begin = time.Now()
		Eventually(isHeld).WithContext(ctx).Should(Satisfy(apierrors.IsTooManyRequests))
		AddReportEntry("it is held", time.Since(begin).String())
	}, SpecTimeout(5*time.Minute))

	It("cost a template at most 2 s", func(ctx context.Context) {
		templates := &admissionv1.ValidatingWebhookConfiguration{}
		key := client.ObjectKey{Name: internalv1alpha1.TemplatesConfiguration}
		Expect(cluster.Admin.Get(ctx, key, templates)).To(Succeed())
		Expect(templates.Webhooks).To(HaveEach(haveShortTimeout))
		proxy.Drop(true)
		DeferCleanup(func() { proxy.Drop(false) })
		template := parse(manifest(framework.Unique("dropped"), misspelt))
		begin := time.Now()
		Expect(cluster.Admin.Create(ctx, template)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Delete(ctx, template)).To(Succeed()) })
		AddReportEntry("a template", time.Since(begin).String())
		Expect(time.Since(begin)).To(BeNumerically("<", unreachableCost))
	}, SpecTimeout(time.Minute))
})

// expectUnreachable expects that the API server rejects new namespaces, and updates that omit state, in time.
func expectUnreachable(ctx context.Context, proxy *faults.TCPProxy) {
	GinkgoHelper()
	cluster.Register(ctx, "unreachable", first)
	name := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("unreachable")).Name
	Eventually(func(g Gomega) {
		g.Expect(webhook(g, ctx, "inject").FailurePolicy).To(HaveValue(Equal(admissionv1.Fail)))
	}).WithContext(ctx).Should(Succeed())
	Expect(configuration(Default, ctx).Webhooks).To(HaveEach(haveShortTimeout))
	proxy.Drop(true)
	defer proxy.Drop(false)
	for what, test := range map[string]struct {
		send func(Gomega) error
		want OmegaMatcher
	}{
		"a new namespace": {func(Gomega) error {
			return cluster.Ordinary.Create(ctx, wrappers.MakeNamespace(framework.Unique("unreachable")).Obj())
		}, refusedBy("inject")},
		"an update that omits state": {func(g Gomega) error {
			current := cluster.GetNamespace(g, ctx, name)
			current.Labels, current.Annotations = nil, nil
			return cluster.Ordinary.Update(ctx, current)
		}, matchers.BeDeniedBy("guard")},
		"a completion": {func(Gomega) error { return complete(ctx, name) }, refusedBy("complete")},
	} {
		Eventually(func(g Gomega) { // The operator can change the namespace at the same time.
			begin := time.Now()
			err := test.send(g)
			cost := time.Since(begin)
			AddReportEntry(what, cost.String())
			if cost > unreachableCost {
				StopTrying(what + " took " + cost.String()).Now()
			}
			g.Expect(err).To(test.want, what)
		}).WithContext(ctx).Should(Succeed())
	}
}
