// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/faults"
	"github.com/nslifecycle/nslifecycle/test/framework/matchers"
)

var _ = Describe("Webhooks behind a firewall that drops packets", Ordered, func() {
	var proxy *faults.TCPProxy

	BeforeAll(func(ctx context.Context) {
		cluster.StopManager()
		DeferCleanup(restartManager)
		var url string
		proxy, url = cluster.StartManagerBehind(ctx)
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
			g.Expect(got.Duration).To(BeNumerically("<", framework.UnreachableCost))
		}).WithContext(ctx).Should(Succeed())
		AddReportEntry("it costs no more", time.Since(begin).String())
		for range 10 {
			got := createOnce(ctx, cluster.Ordinary, namespace.Name, "dropped")
			Expect(got.Err).To(matchers.BeForbiddenBy("gate"))
			Expect(got.Duration).To(BeNumerically("<", framework.UnreachableCost))
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
		Expect(templates.Webhooks).To(HaveEach(framework.HaveShortTimeout))
		proxy.Drop(true)
		DeferCleanup(func() { proxy.Drop(false) })
		template := parse(manifest(framework.Unique("dropped"), misspelt))
		begin := time.Now()
		cluster.Admin.Creates(ctx, template)
		DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Delete(ctx, template)).To(Succeed()) })
		AddReportEntry("a template", time.Since(begin).String())
		Expect(time.Since(begin)).To(BeNumerically("<", framework.UnreachableCost))
	}, SpecTimeout(time.Minute))
})
