// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nslifecycle/nslifecycle/internal/finalization"
	"github.com/nslifecycle/nslifecycle/internal/metrics"
)

const (
	// shortestWakeDelay collects the events of objects that go together.
	shortestWakeDelay = 200 * time.Millisecond
	longestWakeDelay  = 15 * time.Second
	// restFactor is how much longer than a pass the time to the next one is, where there
	// are events all the time.
	restFactor = 4
)

// deletions remember what is known of each Namespace that is being deleted. A restart
// loses nothing but a settling time.
type deletions struct {
	lock  sync.Mutex
	queue requestQueue
	// running is the context of the running controller.
	running    context.Context
	namespaces map[string]*deletion
}

type deletion struct {
	uid types.UID
	// seen is when the deletion was first seen, by the own clock: that of the API server,
	// which made the deletionTimestamp, may be another one.
	seen time.Time
	// begun is when the deletion began, for the metrics.
	begun time.Time
	// hasBegun says that this manager works on the Namespace's end, and isOver that its part
	// in it is over. The cache may show the Namespace as it was for some time after that.
	hasBegun, isOver bool
	// ledger is what passes have found out. The queue lets only one at a time work on it.
	ledger *finalization.Ledger
	// cost is how long the last pass took.
	cost time.Duration
	// hasNews says that there was something to tell after this pass or an earlier one.
	hasNews bool
	// isFailing says that something went wrong in the last pass.
	isFailing bool
}

// start is called when the controller starts.
func (d *deletions) start(ctx context.Context, queue requestQueue) {
	d.lock.Lock()
	defer d.lock.Unlock()
	d.running, d.queue = ctx, queue
}

// context returns the one of the running controller.
func (d *deletions) context() context.Context {
	d.lock.Lock()
	defer d.lock.Unlock()
	if d.running == nil {
		return context.Background()
	}
	return d.running
}

// observe returns when the deletion of a Namespace was first seen.
func (d *deletions) observe(namespace *corev1.Namespace, now time.Time) time.Time {
	d.lock.Lock()
	defer d.lock.Unlock()
	known := d.namespaces[namespace.Name]
	if known == nil || known.uid != namespace.UID {
		if d.namespaces == nil {
			d.namespaces = map[string]*deletion{}
		}
		known.end(metrics.OutcomeOvertaken, now) // of the one before it with this name
		known = &deletion{
			uid: namespace.UID, seen: now, begun: metrics.StartTime(*namespace.DeletionTimestamp, now),
			ledger: &finalization.Ledger{},
		}
		d.namespaces[namespace.Name] = known
	}
	return known.seen
}

// begin returns the ledger of a Namespace that was observed before, and whether this is its
// first pass.
func (d *deletions) begin(name string) (*finalization.Ledger, bool) {
	d.lock.Lock()
	defer d.lock.Unlock()
	known := d.namespaces[name]
	isFirst := !known.hasBegun
	known.hasBegun = true
	return known.ledger, isFirst
}

// end counts the end of a Namespace that this manager worked on, once. It returns the UID
// and the seconds since the deletion, and false where there was nothing to count.
func (d *deletions) end(name, outcome string, now time.Time) (types.UID, float64, bool) {
	d.lock.Lock()
	defer d.lock.Unlock()
	return d.namespaces[name].end(outcome, now)
}

func (d *deletion) end(outcome string, now time.Time) (types.UID, float64, bool) {
	if d == nil || !d.hasBegun || d.isOver {
		return "", 0, false
	}
	d.isOver = true
	seconds := metrics.Seconds(d.begun, now)
	metrics.FinalizationDuration.WithLabelValues(outcome).Observe(seconds)
	return d.uid, seconds, true
}

// report remembers the outcome of a pass, and tells whether there is, or was before,
// anything to tell about the Namespace.
func (d *deletions) report(name string, report *finalization.Report, cost time.Duration) bool {
	d.lock.Lock()
	defer d.lock.Unlock()
	known := d.namespaces[name]
	if known == nil {
		return !report.IsClean()
	}
	known.cost, known.isFailing = cost, report.Err() != nil
	known.hasNews = known.hasNews || !report.IsClean()
	return known.hasNews
}

func (d *deletions) forget(name string) {
	d.lock.Lock()
	defer d.lock.Unlock()
	delete(d.namespaces, name)
}

// failing returns requests for the Namespaces whose last pass went wrong.
func (d *deletions) failing() []reconcile.Request {
	d.lock.Lock()
	defer d.lock.Unlock()
	var requests []reconcile.Request
	for name, known := range d.namespaces {
		if known.isFailing {
			requests = append(requests, requestFor(name))
		}
	}
	return requests
}

// wake makes a Namespace be looked at again: at once if the last object that it waited
// for has gone, otherwise after a while, since more is likely to follow.
func (d *deletions) wake(name string, isLast bool) {
	d.lock.Lock()
	defer d.lock.Unlock()
	known := d.namespaces[name]
	if known == nil || d.queue == nil {
		return
	}
	if isLast {
		d.queue.Add(requestFor(name))
		return
	}
	d.queue.AddAfter(requestFor(name), min(max(restFactor*known.cost, shortestWakeDelay), longestWakeDelay))
}
