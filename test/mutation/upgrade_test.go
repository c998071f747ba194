// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package mutation

import (
	"context"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

var _ = Describe("If an API server begins to serve MutatingAdmissionPolicy, or stops, the operator", Ordered, func() {
	BeforeAll(func(ctx context.Context) {
		authority, err := controlplane.NewAuthority(GinkgoT().TempDir())
		Expect(err).NotTo(HaveOccurred())
		startCluster(ctx, controlplane.WithRestarts(authority), controlplane.WithMutatingPolicies(true))
		framework.SkipWithoutPolicies(ctx, cluster.Admin.Config, "it cannot be enabled")
		restartAPIServer(ctx, false)
	}, NodeTimeout(8*time.Minute))

	It("continues to inject without a restart", func(ctx context.Context) {
		startManager(ctx)
		cluster.Register(ctx, "upgrade", first)
		created := createNamespaces(ctx)

		By("upgrading the API server")
		restartAPIServer(ctx, true)
		Eventually(func(g Gomega) {
			policies, bindings := installed(g, ctx)
			g.Expect(policies).To(ConsistOf(policyNames))
			g.Expect(bindings).To(ConsistOf(policyNames))
		}).WithContext(ctx).WithTimeout(2 * time.Minute).Should(Succeed())
		expectWebhooks(ctx, true)
		cluster.ExpectInjected(ctx)
		created.expectMore(ctx)

		By("downgrading it again")
		restartAPIServer(ctx, false)
		created.expectMore(ctx)
		Consistently(cluster.Manager.Done()).ShouldNot(Receive())
		for _, namespace := range created.stop() {
			Expect(framework.PendingOf(cluster.GetNamespace(Default, ctx, namespace))).To(Equal(first), namespace)
		}
	}, SpecTimeout(8*time.Minute))

	It("makes the webhooks optional an hour after it has applied the policies", func(ctx context.Context) {
		cluster.StopManager()
		restartAPIServer(ctx, true)
		later := clocktesting.NewFakePassiveClock(time.Now().Add(2 * time.Hour))
		hasLaterClock := func(options *manager.Options) { options.Clock = later }
		startManager(ctx, hasLaterClock)
		expectWebhooks(ctx, true)
		cluster.Register(ctx, "later", first)
		Expect(configuration(Default, ctx).Webhooks[0].FailurePolicy).To(HaveValue(Equal(admissionv1.Ignore)))
		cluster.StopManager()
		namespace := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("later"))
		Expect(framework.PendingOf(namespace)).To(Equal(first))
		startManager(ctx, hasLaterClock) // Deregisters the initializer.
	}, SpecTimeout(8*time.Minute))
})

// restartAPIServer restarts the API server with or without MutatingAdmissionPolicy.
func restartAPIServer(ctx context.Context, hasPolicies bool) {
	GinkgoHelper()
	Expect(cluster.KillAPIServer(ctx)).To(Succeed())
	Expect(cluster.StartAPIServer(controlplane.WithMutatingPolicies(hasPolicies))).To(Succeed())
	Expect(framework.ServesPolicies(ctx, cluster.Admin.Config)).To(Equal(hasPolicies))
}

// creation creates namespaces until it is stopped.
type creation struct {
	lock  sync.Mutex
	names []string
	end   func()
}

// createNamespaces creates namespaces as the ordinary user. Requests fail while the API server restarts.
func createNamespaces(ctx context.Context) *creation {
	ctx, cancel := context.WithCancel(ctx)
	created, done := &creation{}, make(chan struct{})
	created.end = func() { cancel(); <-done }
	DeferCleanup(created.end)
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			name := framework.Unique("created")
			if err := cluster.Ordinary.Create(ctx, wrappers.MakeNamespace(name).Obj()); err == nil {
				created.lock.Lock()
				created.names = append(created.names, name)
				created.lock.Unlock()
			}
		}
	}()
	return created
}

func (c *creation) count() int {
	c.lock.Lock()
	defer c.lock.Unlock()
	return len(c.names)
}

// expectMore waits until more namespaces have been created.
func (c *creation) expectMore(ctx context.Context) {
	GinkgoHelper()
	Eventually(c.count).WithContext(ctx).Should(BeNumerically(">", c.count()+20))
}

// stop returns the names of the created namespaces.
func (c *creation) stop() []string {
	c.end()
	return c.names
}
