// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nslifecycle/nslifecycle/test/framework"
)

var _ = Describe("An API server that is late", Serial, func() {
	// These take as long as the grace period.
	DescribeTable("creates no orphaned objects if its latency is shorter than the grace period",
		func(ctx context.Context, delayed path) {
			late := &results{}
			names := openThroughBoth(ctx, 5)
			delayed.start(time.Second)
			var waits []func()
			for _, name := range names {
				wait := a.remove(ctx, name)
				stop := writeContinuously(ctx, b, name, late)
				waits = append(waits, func() {
					wait()
					stop()
				})
			}
			for _, wait := range waits {
				wait()
			}
			report("late writes to %d terminating namespaces: %s", len(names), late)
			if delayed.name == namespacesPath.name {
				Expect(late.count(accepted, "create")).To(BeNumerically(">", 0), "the watch must be stale")
			}
			Expect(remaining(ctx, names)).To(BeEmpty())
		},
		Entry(late(etcdPath), SpecTimeout(specTimeout), etcdPath),
		Entry(late(namespacesPath), SpecTimeout(specTimeout), namespacesPath),
		Entry(late(membersPath), SpecTimeout(specTimeout), membersPath),
	)

	DescribeTable("can create orphaned objects, and write to recreated namespaces, if its watch is later than the grace period",
		func(ctx context.Context, prepare func(context.Context), grace time.Duration) {
			prepare(ctx)
			late := &results{}
			removed, recreated := openThroughBoth(ctx, 2), openThroughBoth(ctx, 2)
			resume := pauseTraffic("namespaces")
			deleted := time.Now()
			removeAndRecreate(ctx, removed, recreated)
			took := time.Since(deleted)
			Expect(settlingTime()).To(Equal(grace))
			var stops []func()
			for _, name := range slices.Concat(removed, recreated) {
				stops = append(stops, writeContinuously(ctx, b, name, late))
			}
			Eventually(func() int { return late.count(accepted, "create") }).WithContext(ctx).Should(BeNumerically(">=", 10))
			resume()
			resumed := time.Now()
			for _, name := range recreated {
				Eventually(operations(b.ordinary, name)["create"]).WithContext(ctx).Should(BeForbiddenBy("gate"))
			}
			for _, stop := range stops {
				stop()
			}
			report("writes through an API server with a watch that is later than the grace period: %s; namespaces recreated %s "+
				"after their deletion; last accepted write %s after the watch resumed", late, took, late.window(resumed))
			orphaned, early := expectOnlyLateWrites(ctx, removed, recreated)
			Expect(orphaned).To(BeNumerically(">", 0), "the spec must reproduce the limit")
			Expect(early).To(BeNumerically(">", 0), "the spec must reproduce the limit")
		},
		Entry("of an API server with a Lease of its own", SpecTimeout(specTimeout), func(context.Context) {}, gracePeriod),
		Entry("of one second, because it shares the Lease of another API server", SpecTimeout(specTimeout), shareLease, time.Second),
	)

	It("can execute a request after the grace period that it admitted before the deletion", func(ctx context.Context) {
		delayed := &results{}
		removed, recreated := openThroughBoth(ctx, 2), openThroughBoth(ctx, 2)
		resume := pauseTraffic("configmaps")
		sent := time.Now()
		var group sync.WaitGroup
		for _, name := range slices.Concat(removed, recreated) {
			group.Go(func() { delayed.add("create", operations(b.ordinary, name)["create"](ctx)) })
		}
		for _, name := range slices.Concat(removed, recreated) {
			Eventually(func() bool { _, ok := sentToEtcd.Load(name); return ok }).WithContext(ctx).Should(BeTrue())
		}
		removeAndRecreate(ctx, removed, recreated)
		took := time.Since(sent)
		resume()
		group.Wait()
		report("requests that reached etcd %s after they were sent: %s", took, delayed)
		orphaned, _ := expectOnlyLateWrites(ctx, removed, recreated)
		Expect(orphaned).To(Equal(len(removed)), "the spec must reproduce the limit")
	}, SpecTimeout(specTimeout))
})

// removeAndRecreate removes all namespaces and recreates some of them through a.
func removeAndRecreate(ctx context.Context, removed, recreated []string) {
	GinkgoHelper()
	var waits []func()
	for _, name := range slices.Concat(removed, recreated) {
		waits = append(waits, a.remove(ctx, name))
	}
	for _, wait := range waits {
		wait()
	}
	for _, name := range recreated {
		a.create(ctx, makeInitialized(name))
		fill(ctx, a.initializer, name)
	}
}

// settlingTime returns the grace period of the namespace that was deleted last.
func settlingTime() time.Duration {
	GinkgoHelper()
	metrics := framework.Metrics()["nslifecycle_settling_time_seconds"]
	Expect(metrics).To(HaveLen(1))
	return time.Duration(metrics[0].GetGauge().GetValue() * float64(time.Second))
}
