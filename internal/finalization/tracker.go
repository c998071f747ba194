// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// minRequeueDelay is long enough to collect the events of objects that are deleted at about the same
	// time.
	minRequeueDelay = 200 * time.Millisecond
	maxRequeueDelay = 15 * time.Second
	// requeueFactor is the minimum ratio of the time between passes to the duration of a pass, while
	// events keep arriving.
	requeueFactor = 4
)

// Outcomes of a finalization, as reported in metrics.
const (
	// OutcomeReleased means that the operator deleted the content and removed the namespace finalizer.
	OutcomeReleased = "Released"
	// OutcomeSuperseded means that another controller removed the namespace finalizer in the meantime.
	OutcomeSuperseded = "Superseded"
)

// DurationRecorder records the duration of a finalization and returns it in seconds.
type DurationRecorder interface {
	RecordFinalization(outcome string, deletionTimestamp metav1.Time, firstSeen, finishedAt time.Time) (seconds float64)
}

// terminatingTracker keeps the state of each terminating Namespace between passes. A restart of the
// operator loses this state, which only restarts the grace period.
type terminatingTracker struct {
	durations DurationRecorder

	lock sync.Mutex
	// running is the context of the running controller.
	running    context.Context
	requeue    func(namespace string, after time.Duration)
	namespaces map[string]*terminatingNamespace
}

type terminatingNamespace struct {
	uid types.UID
	// firstSeen is when the deletion was first seen, according to the operator's clock. The clock of the
	// API server, which sets the deletionTimestamp, can differ.
	firstSeen         time.Time
	deletionTimestamp metav1.Time
	// isStarted reports whether the operator has started a pass. isFinished reports whether the outcome
	// has been recorded. Other passes can follow while the informer cache is stale.
	isStarted, isFinished bool
	// content is used by one pass at a time, because the queue contains a Namespace only once.
	content *contentState
	// passDuration is the duration of the last pass.
	passDuration time.Duration
	// hasNews reports whether a pass was not clean.
	hasNews bool
	// isFailing reports whether the last pass had errors.
	isFailing bool
}

// start sets the context of the running controller and its queue.
func (t *terminatingTracker) start(ctx context.Context, requeue func(namespace string, after time.Duration)) {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.running, t.requeue = ctx, requeue
}

// context returns the context of the running controller.
func (t *terminatingTracker) context() context.Context {
	t.lock.Lock()
	defer t.lock.Unlock()
	if t.running == nil {
		return context.Background()
	}
	return t.running
}

// track returns when the deletion of a Namespace was first seen. For a new Namespace, it returns
// now.
func (t *terminatingTracker) track(namespace *corev1.Namespace, now time.Time) time.Time {
	t.lock.Lock()
	defer t.lock.Unlock()
	known := t.namespaces[namespace.Name]
	if known == nil || known.uid != namespace.UID {
		if t.namespaces == nil {
			t.namespaces = map[string]*terminatingNamespace{}
		}
		t.finishLocked(known, OutcomeSuperseded, now) // An earlier Namespace with this name was finalized.
		known = &terminatingNamespace{
			uid: namespace.UID, firstSeen: now, deletionTimestamp: *namespace.DeletionTimestamp,
			content: &contentState{},
		}
		t.namespaces[namespace.Name] = known
	}
	return known.firstSeen
}

// startPass returns the contentState of a tracked Namespace, and reports whether this is the first
// pass over the Namespace.
func (t *terminatingTracker) startPass(name string) (*contentState, bool) {
	t.lock.Lock()
	defer t.lock.Unlock()
	known := t.namespaces[name]
	isFirst := !known.isStarted
	known.isStarted = true
	return known.content, isFirst
}

// endPass stores the result of a pass. It reports whether this or an earlier pass was not clean.
func (t *terminatingTracker) endPass(name string, report *Report, duration time.Duration) bool {
	t.lock.Lock()
	defer t.lock.Unlock()
	known := t.namespaces[name]
	if known == nil {
		return !report.IsClean()
	}
	known.passDuration, known.isFailing = duration, report.Err() != nil
	known.hasNews = known.hasNews || !report.IsClean()
	return known.hasNews
}

// finish records, only once, the outcome of a finalization that the operator started. It returns the
// UID of the Namespace and the seconds since the deletion. It returns false if it recorded nothing.
func (t *terminatingTracker) finish(name, outcome string, now time.Time) (types.UID, float64, bool) {
	t.lock.Lock()
	defer t.lock.Unlock()
	return t.finishLocked(t.namespaces[name], outcome, now)
}

func (t *terminatingTracker) finishLocked(
	known *terminatingNamespace, outcome string, now time.Time,
) (types.UID, float64, bool) {
	if known == nil || !known.isStarted || known.isFinished {
		return "", 0, false
	}
	known.isFinished = true
	seconds := t.durations.RecordFinalization(outcome, known.deletionTimestamp, known.firstSeen, now)
	return known.uid, seconds, true
}

func (t *terminatingTracker) forget(name string) {
	t.lock.Lock()
	defer t.lock.Unlock()
	delete(t.namespaces, name)
}

// failing returns the names of the Namespaces whose last pass had errors.
func (t *terminatingTracker) failing() []string {
	t.lock.Lock()
	defer t.lock.Unlock()
	var names []string
	for name, known := range t.namespaces {
		if known.isFailing {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// requeueChanged requeues a Namespace after its objects have changed: immediately if the last one
// was deleted, and otherwise after a delay, because more changes are likely to follow.
func (t *terminatingTracker) requeueChanged(name string, isLast bool) {
	t.lock.Lock()
	defer t.lock.Unlock()
	known := t.namespaces[name]
	if known == nil || t.requeue == nil {
		return
	}
	if isLast {
		t.requeue(name, 0)
		return
	}
	t.requeue(name, min(max(requeueFactor*known.passDuration, minRequeueDelay), maxRequeueDelay))
}

// Purpose is the purpose of a request to the API server.
type Purpose string

// The purposes of requests. Discovery and watch requests are not counted.
const (
	// PurposeSharedList is a list request that several namespaces can share.
	PurposeSharedList Purpose = "SharedList"
	// PurposeList is a list request for one namespace.
	PurposeList Purpose = "List"
	// PurposeConfirm is a get request for the Namespace before its content is deleted.
	PurposeConfirm Purpose = "Confirm"
	// PurposeDelete is a request that deletes one object.
	PurposeDelete Purpose = "Delete"
	// PurposeDeleteCollection is a request that deletes all objects of a type that cannot be listed.
	PurposeDeleteCollection Purpose = "DeleteCollection"
)

// Purposes returns all purposes.
func Purposes() []Purpose {
	return []Purpose{PurposeSharedList, PurposeList, PurposeConfirm, PurposeDelete, PurposeDeleteCollection}
}

// MetricsRecorder records the requests of a Finalizer. Its methods are called concurrently.
type MetricsRecorder interface {
	// Requested is called for each request. Retries of client-go are not counted.
	Requested(Purpose)
	// Deleted is called when the API server accepts the deletion of an object that was not yet
	// terminating.
	Deleted()
	// Answered is called with the number of types that were listed in a namespace. If list requests were
	// not shared, each type would require a separate request.
	Answered(listed int)
}
