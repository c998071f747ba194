// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

var _ = Describe("The hold webhooks", Serial, Ordered, func() {
	BeforeAll(func(ctx context.Context) {
		cluster.StopManager()
		cluster.StartHoldingManager(ctx)
		for i, writer := range all {
			expectHeldBy(ctx, all[(i+1)%len(all)], writer)
		}
	}, NodeTimeout(specTimeout))

	AfterAll(func(ctx context.Context) {
		cluster.StopManager()
		cluster.Admin.Deletes(ctx, &admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: internalv1alpha1.HoldConfiguration},
		})
		cluster.Admin.Deletes(ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: internalv1alpha1.TemplatesConfiguration},
		})
		cluster.StartManager(ctx)
	}, NodeTimeout(specTimeout))

	DescribeTable("delay early writes through any API server until the initialization is complete",
		func(ctx context.Context, rounds int, delayed path, latency time.Duration) {
			delayed.start(latency)
			var lock sync.Mutex
			var longest time.Duration
			for range rounds {
				creator, writer := inOrder(latency)
				name, before, turn := framework.Unique("held"), upTo(missingNamespaceWait), upTo(missingNamespaceWait)
				var group sync.WaitGroup
				var completed time.Time
				for i := range 3 {
					group.Go(func() {
						defer GinkgoRecover()
						time.Sleep(before + time.Duration(i-1)*time.Millisecond)
						err := operations(writer.ordinary, name)["create"](ctx)
						for apierrors.IsNotFound(err) { // The write preceded the creation of the namespace.
							err = operations(writer.ordinary, name)["create"](ctx)
						}
						Expect(err).NotTo(HaveOccurred())
						at := time.Now()
						lock.Lock()
						defer lock.Unlock()
						Expect(completed).NotTo(BeZero(), "the write was accepted before the initialization was complete")
						longest = max(longest, at.Sub(completed))
					})
				}
				time.Sleep(before)
				namespace := creator.create(ctx, makeInitialized(name))
				fill(ctx, creator.initializer, name)
				time.Sleep(turn)
				lock.Lock()
				creator.finish(ctx, namespace)
				completed = time.Now()
				lock.Unlock()
				group.Wait()
			}
			report("%d held writes succeeded, with a latency of %s, at most %s after the initialization",
				3*rounds, latency, longest)
		},
		Entry("in a few rounds", SpecTimeout(specTimeout), 15, path{}, noLatency),
		Entry("in many rounds", Label("long"), SpecTimeout(10*specTimeout), 1000, path{}, noLatency),
		Entry(late(etcdPath), SpecTimeout(specTimeout), 5, etcdPath, 300*time.Millisecond),
		Entry(late(namespacesPath), SpecTimeout(specTimeout), 5, namespacesPath, 300*time.Millisecond),
		Entry(late(membersPath), SpecTimeout(specTimeout), 5, membersPath, 300*time.Millisecond),
	)

	It("delay the writes to an API server that was paused during the initialization", func(ctx context.Context) {
		responses := &results{}
		var group sync.WaitGroup
		resume := pause()
		for range 5 {
			namespace := a.create(ctx, makeInitialized(framework.Unique("held")))
			fill(ctx, a.initializer, namespace.Name)
			writeOnce(ctx, &group, b, namespace.Name, responses)
			wait := upTo(2 * requestDelay)
			group.Go(func() {
				defer GinkgoRecover()
				time.Sleep(requestDelay + wait)
				a.finish(ctx, namespace)
			})
		}
		time.Sleep(requestDelay + upTo(requestDelay))
		resume()
		group.Wait()
		report("writes to a paused API server with hold webhooks: %s", responses)
		Expect(responses.count(accepted)).To(Equal(15))
	}, SpecTimeout(specTimeout))
})

// expectHeldBy waits until an API server calls the webhooks.
func expectHeldBy(ctx context.Context, creator, writer *server) {
	GinkgoHelper()
	namespace := creator.create(ctx, makeInitialized(framework.Unique("probe")))
	Eventually(func() bool {
		requestContext, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		_, err := writer.ordinary.CoreV1().ConfigMaps(namespace.Name).Create(requestContext,
			wrappers.MakeConfigMap(namespace.Name, "probe"), metav1.CreateOptions{})
		return err != nil && requestContext.Err() != nil // The response would be an error of the gate.
	}).WithContext(ctx).Should(BeTrue())
	creator.finish(ctx, namespace)
}
