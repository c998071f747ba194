// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nslifecycle/nslifecycle/internal/finalization"
	"github.com/nslifecycle/nslifecycle/internal/metrics"
)

// newQueue returns one as that of the reconciler, for a bubble of synctest.
func newQueue() requestQueue {
	return workqueue.NewTypedRateLimitingQueue(newRateLimiter(firstRetryDelay))
}

// outcome is a report of a pass in which something went wrong, or nothing.
func outcome(err error) *finalization.Report {
	return &finalization.Report{Inventory: &finalization.Inventory{DiscoveryError: err}}
}

// arrival returns how long it takes until something is in the queue, and takes it out.
func arrival(queue requestQueue) (time.Duration, string) {
	began := time.Now()
	request, _ := queue.Get()
	queue.Done(request)
	return time.Since(began), request.Name
}

func TestDeletionsWake(t *testing.T) {
	tests := map[string]struct {
		// cost is how long the last pass took.
		cost   time.Duration
		isLast bool
		want   time.Duration
	}{
		"the last object has gone":                       {isLast: true},
		"the last object has gone, after a long pass":    {cost: time.Minute, isLast: true},
		"there was no pass yet":                          {want: 200 * time.Millisecond},
		"a short pass":                                   {cost: 10 * time.Millisecond, want: 200 * time.Millisecond},
		"a pass that is not to be repeated all the time": {cost: time.Second, want: 4 * time.Second},
		"a very long pass":                               {cost: time.Minute, want: 15 * time.Second},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				queue := newQueue()
				defer queue.ShutDown()
				var d deletions
				d.start(t.Context(), queue)
				d.observe(dying(), now)
				d.report("x", outcome(nil), test.cost)
				d.wake("x", test.isLast)
				took, request := arrival(queue)
				g.Expect(took).To(Equal(test.want))
				g.Expect(request).To(Equal("x"))
			})
		})
	}
}

func TestDeletionsWakeOnlyWhatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		queue := newQueue()
		defer queue.ShutDown()
		var d deletions
		d.observe(dying(), now)
		d.wake("x", true) // The controller has not started: its first list comes anyway.
		d.start(t.Context(), queue)
		d.wake("y", true)
		d.forget("x")
		d.wake("x", true)
		d.wake("x", false)
		time.Sleep(time.Minute)
		g.Expect(queue.Len()).To(BeZero())
	})
}

func TestDeletionsObserve(t *testing.T) {
	g := NewWithT(t)
	var d deletions
	namespace := dying()
	g.Expect(d.observe(namespace, now)).To(Equal(now))
	g.Expect(d.observe(namespace, now.Add(time.Hour))).To(Equal(now))

	again := dying()
	again.UID = "another-uid"
	g.Expect(d.observe(again, now.Add(time.Hour))).To(Equal(now.Add(time.Hour)))

	d.forget("x")
	g.Expect(d.observe(again, now.Add(2*time.Hour))).To(Equal(now.Add(2 * time.Hour)))
}

func TestDeletionsFailing(t *testing.T) {
	g := NewWithT(t)
	var d deletions
	d.report("x", outcome(errOutage), time.Second) // It is not known, and stays so.
	g.Expect(d.failing()).To(BeEmpty())
	d.observe(dying(), now)
	d.observe(dying(named("y")), now)
	d.report("x", outcome(errOutage), time.Second)
	d.report("y", outcome(nil), time.Second)
	g.Expect(d.failing()).To(Equal([]reconcile.Request{requestFor("x")}))
	d.report("x", outcome(nil), time.Second)
	g.Expect(d.failing()).To(BeEmpty())
}

func TestTypesChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		queue := newQueue()
		defer queue.ShutDown()
		server := &finalizationServer{}
		reconciler := server.reconciler(events.NewFakeRecorder(10))
		reconciler.deletions.start(t.Context(), queue)
		for name, err := range map[string]error{"x": errOutage, "y": nil} {
			reconciler.deletions.observe(dying(named(name)), now)
			reconciler.deletions.report(name, outcome(err), time.Second)
		}
		_, err := reconciler.Catalog.Get(t.Context(), now)
		g.Expect(err).NotTo(HaveOccurred())
		for range 5 {
			queue.AddRateLimited(requestFor("x"))
		}
		time.Sleep(time.Minute)
		arrival(queue)

		reconciler.typesChanged(queue)
		// The API server needs a moment until discovery has what has changed.
		took, request := arrival(queue)
		g.Expect(took).To(Equal(discoveryDelay))
		g.Expect(request).To(Equal("x"))
		g.Expect(queue.NumRequeues(requestFor("x"))).To(BeZero())
		time.Sleep(time.Minute)
		g.Expect(queue.Len()).To(BeZero())

		reconciler.Clock.(*clocktesting.FakePassiveClock).SetTime(now.Add(time.Millisecond))
		_, err = reconciler.Catalog.Get(t.Context(), now)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(server.discovers).To(Equal(2))
	})
}

// ended returns how many finalizations have had an outcome.
func ended(g *WithT, outcome string) int {
	var metric dto.Metric
	g.Expect(metrics.FinalizationDuration.WithLabelValues(outcome).(prometheus.Histogram).Write(&metric)).To(Succeed())
	return int(metric.GetHistogram().GetSampleCount())
}

func TestDeletionsEnd(t *testing.T) {
	g := NewWithT(t)
	later := now.Add(90 * time.Second)
	released, overtaken := ended(g, metrics.OutcomeReleased), ended(g, metrics.OutcomeOvertaken)
	var d deletions
	end := func(outcome string) bool {
		_, _, isCounted := d.end("x", outcome, later)
		return isCounted
	}
	g.Expect(end(metrics.OutcomeOvertaken)).To(BeFalse(), "nothing is known")
	d.observe(dying(), now)
	g.Expect(end(metrics.OutcomeOvertaken)).To(BeFalse(), "it was left alone")

	_, isFirst := d.begin("x")
	g.Expect(isFirst).To(BeTrue())
	_, isFirst = d.begin("x")
	g.Expect(isFirst).To(BeFalse())
	uid, seconds, isCounted := d.end("x", metrics.OutcomeReleased, later)
	g.Expect(isCounted).To(BeTrue())
	g.Expect(string(uid)).To(Equal("x-uid"))
	g.Expect(seconds).To(Equal(90.0))
	_, isFirst = d.begin("x")
	g.Expect(isFirst).To(BeFalse(), "by a cache that is behind")
	g.Expect(end(metrics.OutcomeOvertaken)).To(BeFalse(), "it is counted already")
	g.Expect(ended(g, metrics.OutcomeReleased)).To(Equal(released + 1))
	g.Expect(ended(g, metrics.OutcomeOvertaken)).To(Equal(overtaken))

	d.forget("x")
	d.observe(dying(), now)
	d.begin("x")
	again := dying()
	again.UID = "another-uid"
	d.observe(again, now)
	g.Expect(ended(g, metrics.OutcomeOvertaken)).To(Equal(overtaken+1), "somebody else has ended the one before")
}
