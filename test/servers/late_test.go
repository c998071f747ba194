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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/observer"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

var _ = Describe("An API server that is late", Serial, func() {
	// These take as long as the grace period.
	DescribeTable("creates no orphaned objects if its latency is shorter than the grace period",
		func(ctx context.Context, delayed path) {
			late := &results{}
			names := createThroughBoth(ctx, 5)
			delayed.start(500 * time.Millisecond)
			var waits []func()
			for _, name := range names {
				wait := a.remove(ctx, name)
				stop := writeContinuously(ctx, b, name, 10*time.Millisecond, late)
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
			removed, recreated := createThroughBoth(ctx, 2), createThroughBoth(ctx, 2)
			resume := pauseTraffic("namespaces")
			deleted := time.Now()
			removeAndRecreate(ctx, removed, recreated)
			took := time.Since(deleted)
			Expect(gracePeriodMetric()).To(Equal(grace))
			var stops []func()
			for _, name := range slices.Concat(removed, recreated) {
				stops = append(stops, writeContinuously(ctx, b, name, 0, late))
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
		removed, recreated := createThroughBoth(ctx, 2), createThroughBoth(ctx, 2)
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

// gracePeriodMetric returns the grace period of the namespace that was deleted last.
func gracePeriodMetric() time.Duration {
	GinkgoHelper()
	metrics := framework.Metrics()["nslifecycle_finalization_grace_period_seconds"]
	Expect(metrics).To(HaveLen(1))
	return time.Duration(metrics[0].GetGauge().GetValue() * float64(time.Second))
}

// requestDelay is the time that a client needs to send its requests to a paused API server. The requests
// wait in the sockets, and the API server reads them when it resumes.
const requestDelay = 200 * time.Millisecond

// gracePeriod is the value of --finalization-grace-period=Auto with two API servers.
const gracePeriod = 5 * time.Second

var _ = Describe("An API server that is paused", Serial, func() {
	It("rejects early writes to the namespaces that were created meanwhile", func(ctx context.Context) {
		pending, completed := &results{}, &results{}
		var group sync.WaitGroup
		resume := pause()
		var namespaces []*corev1.Namespace
		for i := range 10 {
			namespace := a.create(ctx, makeInitialized(framework.Unique("meanwhile")))
			fill(ctx, a.initializer, namespace.Name)
			if i%2 == 0 {
				writeOnce(ctx, &group, b, namespace.Name, pending)
				namespaces = append(namespaces, namespace)
				continue
			}
			writeOnce(ctx, &group, b, namespace.Name, completed)
			time.Sleep(upTo(requestDelay))
			a.finish(ctx, namespace)
		}
		time.Sleep(requestDelay)
		resume()
		group.Wait()
		report("after a pause: writes to initializing namespaces: %s; to initialized namespaces: %s", pending, completed)
		Expect(pending.count(string(metav1.StatusReasonForbidden))).To(Equal(3 * len(namespaces)))
		for _, namespace := range namespaces {
			b.finish(ctx, namespace)
			Eventually(operations(b.ordinary, namespace.Name)["create"]).WithContext(ctx).Should(Succeed())
		}
	}, SpecTimeout(specTimeout))

	It("creates no orphaned objects if it resumes during the grace period of the finalization", func(ctx context.Context) {
		late := &results{}
		names := createThroughBoth(ctx, 10)
		var group sync.WaitGroup
		resume := pause()
		var waits []func()
		start := time.Now()
		for _, name := range names {
			waits = append(waits, a.remove(ctx, name))
		}
		// The rest of the grace period is for a busy machine.
		time.Sleep(time.Until(start.Add(upTo(gracePeriod / 10))))
		for _, name := range names {
			writeOnce(ctx, &group, b, name, late)
		}
		time.Sleep(requestDelay)
		resume()
		group.Wait()
		report("late writes to %d terminating namespaces after a pause: %s", len(names), late)
		for _, wait := range waits {
			wait()
		}
		Expect(remaining(ctx, names)).To(BeEmpty())
	}, SpecTimeout(specTimeout))

	It("can create orphaned objects, and write to recreated namespaces, if it resumes after the grace period", func(ctx context.Context) {
		late := &results{}
		removed, recreated := createThroughBoth(ctx, 5), createThroughBoth(ctx, 5)
		var group sync.WaitGroup
		resume := pause()
		waits := map[string]func(){}
		for _, name := range append(removed, recreated...) {
			waits[name] = a.remove(ctx, name)
		}
		for _, wait := range waits {
			wait()
		}
		for _, name := range recreated {
			a.create(ctx, makeInitialized(name))
			fill(ctx, a.initializer, name)
		}
		for _, name := range append(removed, recreated...) {
			writeOnce(ctx, &group, b, name, late)
		}
		time.Sleep(requestDelay)
		resume()
		group.Wait()
		report("writes after a pause that is longer than the grace period: %s", late)

		expectOnlyLateWrites(ctx, removed, recreated)
	}, SpecTimeout(specTimeout))
})

// expectOnlyLateWrites checks that all violations are writes of the user through b: orphaned objects in namespaces
// that were removed, and early writes to namespaces that were recreated.
func expectOnlyLateWrites(ctx context.Context, removed, recreated []string) (orphaned, early int) {
	GinkgoHelper()
	orphans := map[string]string{}
	for _, configMap := range remaining(ctx, removed) {
		orphans[configMap.Name] = configMap.Namespace
	}
	orphaned = len(orphans)
	unattributed := 0
	for _, violation := range cluster.Observation.CollectViolations(ctx) {
		// The API server can lose its connection to etcd during a request.
		if violation.Request == nil {
			Expect(violation.Invariant).To(Equal(observer.OrphanedObject), "%v", violation)
			Expect(removed).To(ContainElement(violation.Namespace), "%v", violation)
			unattributed++
			continue
		}
		Expect(violation.Request.Identity().Username).To(Equal(framework.OrdinaryUser), "%v", violation)
		Expect(violation.Request.Log).To(Equal(b.Log), "%v", violation)
		if violation.Invariant == observer.OrphanedObject {
			Expect(orphans).To(HaveKeyWithValue(violation.Request.ResponseObject.Name, violation.Namespace))
			delete(orphans, violation.Request.ResponseObject.Name)
			continue
		}
		Expect(violation.Invariant).To(Equal(observer.EarlyWrite), "%v", violation)
		Expect(recreated).To(ContainElement(violation.Namespace), "%v", violation)
		early++
	}
	Expect(orphans).To(HaveLen(unattributed), "orphaned objects that the observer did not find")
	report("%d orphaned objects in %d removed namespaces, %d early writes to %d recreated namespaces",
		orphaned, len(removed), early, len(recreated))
	return orphaned, early
}

// createThroughBoth creates namespaces with content, and waits until b has observed them.
func createThroughBoth(ctx context.Context, number int) []string {
	GinkgoHelper()
	var names []string
	for range number {
		name := framework.Unique("paused")
		a.create(ctx, wrappers.MakeNamespace(name).Obj())
		fill(ctx, b.ordinary, name)
		names = append(names, name)
	}
	return names
}

// remaining returns the ConfigMaps in namespaces.
func remaining(ctx context.Context, names []string) []corev1.ConfigMap {
	GinkgoHelper()
	var found []corev1.ConfigMap
	for _, name := range names {
		var list corev1.ConfigMapList
		Expect(cluster.Admin.List(ctx, &list, client.InNamespace(name))).To(Succeed())
		found = append(found, list.Items...)
	}
	return found
}

// If the cache of an API server does not contain the namespace of a CREATE, the API server waits for 50 ms and
// then reads the namespace from etcd (k8s.io/apiserver, pkg/admission/plugin/namespace/lifecycle).
const missingNamespaceWait = 50 * time.Millisecond

var _ = Describe("The gate", Serial, func() {
	DescribeTable("rejects all writes through one API server while the other creates the namespace",
		func(ctx context.Context, rounds int, delayed path, latency time.Duration) {
			delayed.start(latency)
			all := &results{}
			countChanges := func() int { return all.count(string(metav1.StatusReasonForbidden), "update", "delete") }
			for range rounds {
				creator, writer := inOrder(latency)
				name, before := framework.Unique("created"), upTo(missingNamespaceWait)
				rejected := countChanges()
				stop := writeContinuously(ctx, writer, name, 0, all)
				time.Sleep(before)
				creator.create(ctx, makeInitialized(name))
				fill(ctx, creator.initializer, name)
				time.Sleep(upTo(missingNamespaceWait) + 4*latency)
				Eventually(countChanges).WithContext(ctx).Should(BeNumerically(">", rejected))
				stop()
			}
			report("%d namespaces created and written to through different API servers: %s", rounds, all)
			Expect(all.count(string(metav1.StatusReasonForbidden), "create")).To(BeNumerically(">=", rounds))
			Expect(all.count(accepted)).To(BeZero())
		},
		Entry("in a few rounds", SpecTimeout(specTimeout), 15, path{}, noLatency),
		Entry("in many rounds", Label("long"), SpecTimeout(10*specTimeout), 500, path{}, noLatency),
		// These take as long as several round trips.
		Entry(late(etcdPath), SpecTimeout(specTimeout), 5, etcdPath, 300*time.Millisecond),
		Entry(late(namespacesPath), SpecTimeout(specTimeout), 5, namespacesPath, 300*time.Millisecond),
		Entry(late(membersPath), SpecTimeout(specTimeout), 5, membersPath, 300*time.Millisecond),
	)

	DescribeTable("rejects writes only for a short time after the other API server completed the initialization",
		func(ctx context.Context, rounds int, delayed path, latency time.Duration) {
			rejected := &results{}
			var longest time.Duration
			delayed.start(latency)
			for range rounds {
				completer, writer := inOrder(latency)
				namespace := completer.create(ctx, makeInitialized(framework.Unique("completed")))
				fill(ctx, writer.initializer, namespace.Name) // The writer observes the namespace.
				completer.finish(ctx, namespace)
				completed := time.Now()
				Eventually(func() error {
					_, err := writer.ordinary.CoreV1().ConfigMaps(namespace.Name).Create(ctx,
						wrappers.MakeConfigMap(namespace.Name, "a"), metav1.CreateOptions{})
					if err != nil {
						Expect(err).To(BeForbiddenBy("gate"))
						rejected.add("create", err)
					}
					return err
				}).WithContext(ctx).WithPolling(time.Millisecond).Should(Succeed())
				longest = max(longest, time.Since(completed))
			}
			report("rejected after %d initializations, with a latency of %s: %s; first accepted write at most %s after the initialization",
				rounds, latency, rejected, longest)
		},
		Entry("in a few rounds", SpecTimeout(specTimeout), 15, path{}, noLatency),
		Entry("in many rounds", Label("long"), SpecTimeout(10*specTimeout), 500, path{}, noLatency),
		// These take as long as several round trips.
		Entry(late(etcdPath), SpecTimeout(specTimeout), 5, etcdPath, 500*time.Millisecond),
		Entry(late(namespacesPath), SpecTimeout(specTimeout), 5, namespacesPath, 500*time.Millisecond),
		Entry(late(membersPath), SpecTimeout(specTimeout), 5, membersPath, 500*time.Millisecond),
	)
})
