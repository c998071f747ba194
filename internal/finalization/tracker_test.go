// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// durationCounter is a DurationRecorder for tests.
type durationCounter map[string]int

func (c durationCounter) RecordFinalization(
	outcome string, deletionTimestamp metav1.Time, _, finishedAt time.Time,
) float64 {
	c[outcome]++
	return finishedAt.Sub(deletionTimestamp.Time).Seconds()
}

func newTracker() *terminatingTracker { return &terminatingTracker{durations: durationCounter{}} }

// requeues maps the names of namespaces to the delays of their requeues.
type requeues map[string][]time.Duration

func (r requeues) add(namespace string, after time.Duration) {
	r[namespace] = append(r[namespace], after)
}

// reportWith returns the report of a pass with the given discovery error, which may be nil.
func reportWith(err error) *Report {
	return &Report{Resources: &ResourceSet{DiscoveryError: err}}
}

func recreated(namespace *corev1.Namespace) *corev1.Namespace {
	return withUID(namespace, types.UID("another-uid"))
}

func TestTrackerRequeuesAfterChanges(t *testing.T) {
	tests := map[string]struct {
		passDuration time.Duration
		isLast       bool
		want         time.Duration
	}{
		"the last object is deleted":                    {isLast: true},
		"the last object is deleted, after a long pass": {passDuration: time.Minute, isLast: true},
		"before the first pass":                         {want: 200 * time.Millisecond},
		"after a short pass":                            {passDuration: 10 * time.Millisecond, want: 200 * time.Millisecond},
		"after a longer pass":                           {passDuration: time.Second, want: 4 * time.Second},
		"after a very long pass":                        {passDuration: time.Minute, want: 15 * time.Second},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			tracker, queue := newTracker(), requeues{}
			tracker.start(t.Context(), queue.add)
			tracker.track(terminating(), now)
			tracker.endPass("x", reportWith(nil), test.passDuration)
			tracker.requeueChanged("x", test.isLast)
			NewWithT(t).Expect(queue).To(Equal(requeues{"x": {test.want}}))
		})
	}
}

func TestTrackerRequeuesOnlyTrackedNamespaces(t *testing.T) {
	tracker, queue := newTracker(), requeues{}
	tracker.track(terminating(), now)
	// The controller has not started yet, so its initial list will include the Namespace.
	tracker.requeueChanged("x", true)
	tracker.start(t.Context(), queue.add)
	tracker.requeueChanged("y", true)
	tracker.forget("x")
	tracker.requeueChanged("x", true)
	tracker.requeueChanged("x", false)
	NewWithT(t).Expect(queue).To(BeEmpty())
}

func TestTrackerFirstSeen(t *testing.T) {
	g := NewWithT(t)
	tracker := newTracker()
	g.Expect(tracker.track(terminating(), now)).To(Equal(now))
	g.Expect(tracker.track(terminating(), now.Add(time.Hour))).To(Equal(now))
	g.Expect(tracker.track(recreated(terminating()), now.Add(time.Hour))).To(Equal(now.Add(time.Hour)))

	tracker.forget("x")
	g.Expect(tracker.track(recreated(terminating()), now.Add(2*time.Hour))).To(Equal(now.Add(2 * time.Hour)))
}

func TestTrackerFailing(t *testing.T) {
	g := NewWithT(t)
	tracker := newTracker()
	tracker.endPass("x", reportWith(errOutage), time.Second) // The Namespace is not tracked.
	g.Expect(tracker.failing()).To(BeEmpty())
	other := terminating()
	other.Name = "y"
	tracker.track(terminating(), now)
	tracker.track(other, now)
	tracker.endPass("x", reportWith(errOutage), time.Second)
	tracker.endPass("y", reportWith(nil), time.Second)
	g.Expect(tracker.failing()).To(Equal([]string{"x"}))
	tracker.endPass("x", reportWith(nil), time.Second)
	g.Expect(tracker.failing()).To(BeEmpty())
}

func TestTrackerFinish(t *testing.T) {
	g := NewWithT(t)
	finishedAt := now.Add(90 * time.Second)
	counts := durationCounter{}
	tracker := &terminatingTracker{durations: counts}
	finish := func(outcome string) bool {
		_, _, ok := tracker.finish("x", outcome, finishedAt)
		return ok
	}
	g.Expect(finish(OutcomeSuperseded)).To(BeFalse(), "the Namespace is not tracked")
	tracker.track(terminating(), now)
	g.Expect(finish(OutcomeSuperseded)).To(BeFalse(), "no pass has started")

	_, isFirst := tracker.startPass("x")
	g.Expect(isFirst).To(BeTrue())
	_, isFirst = tracker.startPass("x")
	g.Expect(isFirst).To(BeFalse())
	uid, seconds, ok := tracker.finish("x", OutcomeReleased, finishedAt)
	g.Expect(ok).To(BeTrue())
	g.Expect(string(uid)).To(Equal("x-uid"))
	g.Expect(seconds).To(Equal(90.0))
	_, isFirst = tracker.startPass("x")
	g.Expect(isFirst).To(BeFalse(), "a pass with a stale cache is not the first pass")
	g.Expect(finish(OutcomeSuperseded)).To(BeFalse(), "the outcome has already been recorded")
	g.Expect(counts).To(Equal(durationCounter{OutcomeReleased: 1}))

	tracker.forget("x")
	tracker.track(terminating(), now)
	tracker.startPass("x")
	tracker.track(recreated(terminating()), now)
	g.Expect(counts[OutcomeSuperseded]).To(Equal(1), "another controller finalized the earlier Namespace")
}

// requestCounter is a MetricsRecorder for tests.
type requestCounter struct {
	lock              sync.Mutex
	requests          map[Purpose]int
	deleted, answered int
}

func (c *requestCounter) Requested(purpose Purpose) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.requests == nil {
		c.requests = map[Purpose]int{}
	}
	c.requests[purpose]++
}

func (c *requestCounter) Deleted() {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.deleted++
}

func (c *requestCounter) Answered(listed int) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.answered += listed
}

// Types whose list request failed are not counted.
func TestMetricsCountListedTypes(t *testing.T) {
	g := NewWithT(t)
	server := &contentServer{errors: map[string]error{"list widgets": errOutage}}
	deleter, _ := newDeleter(server, &namespaceReader{namespace: terminating()}, ordinary...)
	counted := deleter.Metrics.(*requestCounter)
	_, err := deleter.deleteContent(t.Context(), terminating(), now, now, &contentState{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(counted.requests[PurposeSharedList]).To(Equal(3))
	g.Expect(counted.answered).To(Equal(2))
}

func TestMetricsOfPasses(t *testing.T) {
	const hold = "example.com/hold"
	g := NewWithT(t)
	server := &contentServer{
		objects: map[string]objects{"widgets": {
			object("deleted"), object("held", hold), object("refused"),
			deleted(now, "terminating", hold), deleted(now, "orphaning", metav1.FinalizerOrphanDependents),
		}},
		errors: map[string]error{"delete widgets/refused": errForbidden},
	}
	deleter, _ := newDeleter(server, &namespaceReader{namespace: terminating()},
		"example.com/v1/widgets", "example.com/v1/bulk:delete,deletecollection")
	counted := deleter.Metrics.(*requestCounter)
	var state contentState
	_, err := deleter.deleteContent(t.Context(), terminating(), now, now, &state)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(counted.requests[PurposeDelete]).To(Equal(4), "a terminating object needs no DELETE request")
	g.Expect(counted.deleted).To(Equal(2), "rejected and earlier deletions are not counted")
	g.Expect(counted.requests[PurposeDeleteCollection]).To(Equal(1))
	g.Expect(counted.requests[PurposeConfirm]).To(BeNumerically(">", 0))
	g.Expect(counted.requests[PurposeList]).To(Equal(1), "remaining objects are counted again")
	g.Expect(counted.requests[PurposeSharedList]).To(Equal(1))
	g.Expect(counted.answered).To(Equal(1))

	_, err = deleter.deleteContent(t.Context(), terminating(), now, now, &state)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(counted.deleted).To(Equal(2), "each deletion is counted once")
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
