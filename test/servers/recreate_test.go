// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/observer"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

var _ = Describe("A namespace that is deleted and recreated through alternating API servers", Serial, func() {
	DescribeTable("is closed to new objects; updates and deletions are accepted only from an API server with a stale watch",
		func(ctx context.Context, names, cycles int, delayed path, latency time.Duration) {
			delayed.start(latency)
			all := &results{}
			var lock sync.Mutex
			var window time.Duration
			var group sync.WaitGroup
			for range names {
				name := framework.Unique("again")
				second, first := inOrder(latency)
				group.Go(func() {
					defer GinkgoRecover()
					first.create(ctx, wrappers.MakeNamespace(name).Obj())
					fill(ctx, second.ordinary, name)
					for range cycles {
						created, responses := recreate(ctx, name, first, second, latency)
						lock.Lock()
						window = max(window, responses.window(created))
						lock.Unlock()
						all.merge(responses)
						if latency == 0 {
							first, second = second, first
						}
					}
				})
			}
			group.Wait()
			report("writes to %d recreated namespaces, with a latency of %s: %s; last accepted write at most %s after the creation",
				names*cycles, latency, all, window)
			Expect(all.count(accepted, "create")).To(BeZero())
			found := cluster.Observation.CollectViolations(ctx)
			report("the observer found %d early updates and deletions", len(found))
			for _, violation := range found {
				Expect(violation.Invariant).To(Equal(observer.EarlyWrite), "%v", violation)
				Expect(violation.Request.Verb).To(BeElementOf("update", "delete"), "%v", violation)
			}
			Expect(found).To(HaveLen(all.count(accepted)))
		},
		Entry("in a few rounds", SpecTimeout(specTimeout), 10, 2, path{}, noLatency),
		Entry("in many rounds", Label("long"), SpecTimeout(10*specTimeout), 10, 50, path{}, noLatency),
		// These take as long as the grace period and several round trips.
		Entry(late(etcdPath), SpecTimeout(specTimeout), 5, 1, etcdPath, 500*time.Millisecond),
		Entry(late(namespacesPath), SpecTimeout(specTimeout), 5, 1, namespacesPath, 500*time.Millisecond),
		Entry(late(membersPath), SpecTimeout(specTimeout), 5, 1, membersPath, 500*time.Millisecond),
	)
})

// recreate deletes a namespace through one API server and creates it through the other. A user writes to
// it through the first one from its removal on. recreate opens the namespace and returns the time of the
// creation and the responses before.
func recreate(
	ctx context.Context, name string, first, second *server, latency time.Duration,
) (time.Time, *results) {
	GinkgoHelper()
	old := uidOf(ctx, name)
	first.remove(ctx, name)()
	early := &results{}
	stop := writeContinuously(ctx, first, name, early)
	created := second.create(ctx, makeInitialized(name))
	at := time.Now()
	Expect(created.UID).NotTo(Equal(old))
	fill(ctx, second.initializer, name)
	time.Sleep(missingNamespaceWait + 4*latency)
	stop()
	second.finish(ctx, created)
	return at, early
}

func uidOf(ctx context.Context, name string) types.UID {
	GinkgoHelper()
	return cluster.GetNamespace(Default, ctx, name).UID
}
