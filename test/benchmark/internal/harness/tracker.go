// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"maps"
	"sync"
	"time"
)

// Tracker waits until something has happened to each object of a set, such as its deletion, and
// records the times.
type Tracker struct {
	lock    sync.Mutex
	waiting map[string]bool
	times   map[string]time.Time
	last    time.Time
	done    chan struct{}
}

// NewTracker returns a tracker that waits for the objects with the given names.
func NewTracker(names []string) *Tracker {
	t := &Tracker{waiting: map[string]bool{}, times: map[string]time.Time{}, done: make(chan struct{})}
	for _, name := range names {
		t.waiting[name] = true
	}
	return t
}

// Record records the time for an object. Only the first time counts.
func (t *Tracker) Record(name string, now time.Time) {
	t.lock.Lock()
	defer t.lock.Unlock()
	if !t.waiting[name] {
		return
	}
	delete(t.waiting, name)
	t.times[name], t.last = now, now
	if len(t.waiting) == 0 {
		close(t.done)
	}
}

// Done returns a channel that is closed when a time is recorded for the last object.
func (t *Tracker) Done() <-chan struct{} { return t.done }

// Last returns the last recorded time.
func (t *Tracker) Last() time.Time {
	t.lock.Lock()
	defer t.lock.Unlock()
	return t.last
}

// Times returns the recorded times by name.
func (t *Tracker) Times() map[string]time.Time {
	t.lock.Lock()
	defer t.lock.Unlock()
	return maps.Clone(t.times)
}

// Remaining returns the number of objects without a recorded time.
func (t *Tracker) Remaining() int {
	t.lock.Lock()
	defer t.lock.Unlock()
	return len(t.waiting)
}
