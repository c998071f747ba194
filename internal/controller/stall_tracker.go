// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/metrics"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
)

// maxDiagnosisInterval is the longest time between two diagnoses of a stalled Namespace, unless the
// progress deadline is longer. Diagnoses are repeated because the cause can change.
const maxDiagnosisInterval = 5 * time.Minute

// stallTracker tracks the progress of each initializing or terminating Namespace. After a restart, all
// progress deadlines start again.
type stallTracker struct {
	lock       sync.Mutex
	namespaces map[string]*trackedNamespace
}

// trackedNamespace is the state of one Namespace. The queue ensures that only one worker at a time
// uses it.
type trackedNamespace struct {
	diagnosis.StallDetector
	// cause is the first cause of the last diagnosis, or the reason of the condition that a previous
	// manager wrote. It is empty if the Namespace is not blocked.
	cause diagnosis.Cause
	// gauge is the metric that counts the Namespace. It is nil if the Namespace is not blocked.
	gauge prometheus.Gauge
	// reported contains the keys of the findings that have an Event. It is nil before the first
	// diagnosis.
	reported map[string]bool
	// next is the time of the next diagnosis. interval is the time between that diagnosis and the
	// following one.
	next     time.Time
	interval time.Duration
	// isRepeated reports whether the Namespace was diagnosed since it last made progress.
	isRepeated bool
}

// reset stops tracking all Namespaces when the controller starts.
func (t *stallTracker) reset() {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.namespaces = map[string]*trackedNamespace{}
	metrics.NamespacesBlocked.Reset()
}

// update records the state of a Namespace.
func (t *stallTracker) update(
	namespace *corev1.Namespace, now time.Time, progressDeadline time.Duration,
) *trackedNamespace {
	t.lock.Lock()
	defer t.lock.Unlock()
	tracked := t.namespaces[namespace.Name]
	if tracked == nil {
		tracked = &trackedNamespace{}
		t.namespaces[namespace.Name] = tracked
	}
	tracked.update(namespace, now, progressDeadline)
	return tracked
}

// remove stops tracking a Namespace.
func (t *stallTracker) remove(name string) {
	t.lock.Lock()
	defer t.lock.Unlock()
	if tracked := t.namespaces[name]; tracked != nil {
		tracked.setCause("")
		delete(t.namespaces, name)
	}
}

func (n *trackedNamespace) update(namespace *corev1.Namespace, now time.Time, progressDeadline time.Duration) {
	uid, state := n.UID(), n.State()
	if !n.Update(namespace, now) {
		return
	}
	var cause diagnosis.Cause
	if uid != namespace.UID || state != n.State() {
		n.reported = nil
		if diagnosis.IsBlocked(namespace, n.State()) {
			cause = diagnosis.Cause(nsobject.FindCondition(namespace, diagnosis.BlockedCondition(n.State())).Reason)
		}
	}
	n.setCause(cause)
	n.next, n.interval, n.isRepeated = now.Add(progressDeadline), progressDeadline, false
}

// blockedState returns the state in which the Namespace is blocked, or "".
func (n *trackedNamespace) blockedState() diagnosis.NamespaceState {
	if n.cause == "" {
		return ""
	}
	return n.State()
}

// setCause sets the cause, and updates the metric that counts the Namespace.
func (n *trackedNamespace) setCause(cause diagnosis.Cause) {
	n.cause = cause
	var gauge prometheus.Gauge
	if cause != "" {
		gauge = metrics.NamespacesBlocked.WithLabelValues(string(n.State()), string(cause))
	}
	if gauge == n.gauge {
		return
	}
	if n.gauge != nil {
		n.gauge.Dec()
	}
	if gauge != nil {
		gauge.Inc()
	}
	n.gauge = gauge
}

// schedule sets the time of the next diagnosis, with exponential backoff.
func (n *trackedNamespace) schedule(now time.Time, progressDeadline time.Duration) {
	n.next = now.Add(n.interval)
	n.interval = min(2*n.interval, max(maxDiagnosisInterval, progressDeadline))
	n.isRepeated = true
}

// setReported sets the findings that have an Event. If a finding disappears and occurs again,
// another Event is recorded.
func (n *trackedNamespace) setReported(findings []diagnosis.Finding) {
	n.reported = map[string]bool{}
	for _, finding := range findings {
		n.reported[finding.Key()] = true
	}
}
