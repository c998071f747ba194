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
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
)

// longestPause is the longest time between two diagnoses of a Namespace that does not move,
// unless the patience is longer. The cluster around it may have changed.
const longestPause = 5 * time.Minute

// standstills remember what is known of each Namespace that is being initialized or
// deleted. A restart loses nothing but some patience.
type standstills struct {
	lock       sync.Mutex
	namespaces map[string]*standstill
}

// standstill is what is known of one Namespace. The queue lets only one at a time work on
// it.
type standstill struct {
	diagnosis.Standstill
	// cause is the leading one of the last diagnosis, or the one that an earlier manager has
	// left on the Namespace; empty if it is not blocked.
	cause diagnosis.Cause
	// gauge is the one that counts it; nil if it is not blocked.
	gauge prometheus.Gauge
	// told are the keys of the findings of which there is an Event; nil before the first
	// diagnosis.
	told map[string]bool
	// next is when to diagnose, and pause how long to wait after that.
	next  time.Time
	pause time.Duration
	// isRepeated says that there was a diagnosis since the Namespace last moved.
	isRepeated bool
}

// start begins anew when the controller starts.
func (s *standstills) start() {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.namespaces = nil
	metrics.NamespacesBlocked.Reset()
}

// observe takes notice of a Namespace as it is now and returns what is known of it.
func (s *standstills) observe(namespace *corev1.Namespace, now time.Time, patience time.Duration) *standstill {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.namespaces == nil {
		s.namespaces = map[string]*standstill{}
	}
	known := s.namespaces[namespace.Name]
	if known == nil {
		known = &standstill{}
		s.namespaces[namespace.Name] = known
	}
	known.observe(namespace, now, patience)
	return known
}

// forget drops what is known of a Namespace.
func (s *standstills) forget(name string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if known := s.namespaces[name]; known != nil {
		known.setCause("")
		delete(s.namespaces, name)
	}
}

func (s *standstill) observe(namespace *corev1.Namespace, now time.Time, patience time.Duration) {
	uid, stage := s.UID(), s.Stage()
	if !s.Observe(namespace, now) {
		return
	}
	var cause diagnosis.Cause
	if uid != namespace.UID || stage != s.Stage() {
		s.told = nil
		if diagnosis.IsBlocked(namespace, s.Stage()) {
			cause = diagnosis.Cause(nscondition.Find(namespace, diagnosis.BlockedCondition(s.Stage())).Reason)
		}
	}
	s.setCause(cause)
	s.next, s.pause, s.isRepeated = now.Add(patience), patience, false
}

// setCause changes the leading cause, and what the metrics count it as.
func (s *standstill) setCause(cause diagnosis.Cause) {
	s.cause = cause
	var gauge prometheus.Gauge
	if cause != "" {
		gauge = metrics.NamespacesBlocked.WithLabelValues(string(s.Stage()), string(cause))
	}
	if gauge == s.gauge {
		return
	}
	if s.gauge != nil {
		s.gauge.Dec()
	}
	if gauge != nil {
		gauge.Inc()
	}
	s.gauge = gauge
}

// schedule puts the next diagnosis off, and the one after that for longer.
func (s *standstill) schedule(now time.Time, patience time.Duration) {
	s.next = now.Add(s.pause)
	s.pause = min(2*s.pause, max(longestPause, patience))
	s.isRepeated = true
}

// isNews tells whether there was no Event of a finding yet.
func (s *standstill) isNews(finding diagnosis.Finding) bool {
	return !s.told[finding.Key()]
}

// tell remembers the findings of which there are Events now. One that goes away and comes
// back is told of again.
func (s *standstill) tell(findings []diagnosis.Finding) {
	s.told = map[string]bool{}
	for _, finding := range findings {
		s.told[finding.Key()] = true
	}
}
