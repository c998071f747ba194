// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package timeouts

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/internal/servertime"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// offsetClock is a clock that is ahead of the API server's clock, or behind it.
type offsetClock time.Duration

func (c offsetClock) Now() time.Time { return time.Now().Add(time.Duration(c)) }

func (c offsetClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// runManagerWithClock is like runManager with another local clock.
func runManagerWithClock(ctx context.Context, local offsetClock) (stop func()) {
	GinkgoHelper()
	config, err := plane.ServiceAccountConfig(ctx, controlplane.SystemNamespace, controlplane.ServiceAccount)
	Expect(err).NotTo(HaveOccurred())
	serverClock := servertime.NewClock(local)
	config.Wrap(serverClock.Wrap)
	return stopAfterSpec(plane.StartManagerAs(ctx, config, func(options *manager.Options) {
		options.Clock, options.ServerClock = local, serverClock
	}))
}

// test/chaos runs the binary with other clocks.
var _ = Describe("A timeout", func() {
	// The specs take longer than the timeout, and the timeout longer than the change of the manager.
	DescribeTable("is not enforced early after a change to a manager with another clock",
		func(ctx context.Context, first, second time.Duration) {
			const timeout = 20 * time.Second
			bindWorker(ctx)
			stop := runManagerWithClock(ctx, offsetClock(first))
			register(ctx, limited(slow, int32(timeout.Seconds()), v1alpha1.InitializerIgnore))
			namespace := create(ctx, wrappers.MakeNamespace(unique("clocks")))
			Eventually(get).WithContext(ctx).WithArguments(namespace.Name).
				Should(HaveCondition(v1alpha1.ConditionInitializerTurn, corev1.ConditionTrue, v1alpha1.ReasonPending, slow))
			stop()
			runManagerWithClock(ctx, offsetClock(second))
			Eventually(func(g Gomega) string { return pendingOf(get(g, ctx, namespace.Name)) }).WithContext(ctx).Should(BeEmpty())
			// The test and the API server use the same clock. The clock of each manager differs by at most a second.
			Expect(time.Since(namespace.CreationTimestamp.Time)).To(BeNumerically(">=", timeout-2*time.Second))
		},
		Entry("that is two hours ahead of the first one", SpecTimeout(5*time.Minute), -time.Hour, time.Hour),
		Entry("that is two hours behind the first one", SpecTimeout(5*time.Minute), time.Hour, -time.Hour),
	)
})
