// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

// Memory is what the passes over a Namespace remember. It is lost when the operator stops.
type Memory struct {
	// FirstPass is when a new Namespace was first processed, FirstTurn when it first had a deadline, and UnsyncedSince
	// since when it waits for watches that have just started; zero if it is not.
	FirstPass, FirstTurn, UnsyncedSince time.Time
	// NextFullPass is when the next full pass is due. A full pass finds changes that the managedFields do not show.
	NextFullPass time.Time
	// Created has the UIDs of the objects that the operator has created, as the status code of the response shows,
	// until the Namespace records them. The objects of an earlier process count as adopted: whether a user has created
	// them meanwhile cannot be proven, also not if the intention had been recorded before.
	Created map[template.ObjectKey]types.UID
	// Granted has the UIDs of the RoleBindings that are effective in a new Namespace.
	Granted      sets.Set[types.UID]
	Restorations restorations
	Absences     Absences
	Failures     failures
	// Differences has the objects that differ from their templates although they were applied.
	Differences map[template.ObjectKey]difference
	// Unconfirmed maps each write or deletion of an object to the time when a concurrent change first prevented it.
	Unconfirmed map[template.ObjectKey]time.Time
	Late        lateSelection
}

// Absences maps each template and object that no longer belongs to a Namespace to the time when this was first seen.
// Clients that replace a Namespace remove its labels for a moment, so recorded objects are removed only after
// initialization.DeregistrationDelay. The times are in memory, so that no client can change them; after a restart, the
// delay starts again.
type Absences map[absenceKey]time.Time

// absenceKey identifies a template or an object that no longer belongs to a Namespace.
type absenceKey struct {
	template string
	// object is empty if it is the template.
	object template.ObjectKey
}

// failures maps each failure that waiting cannot end to the time when it was first seen. The problems have no messages.
// The times are in memory: after a restart, they start again.
type failures map[template.Problem]time.Time

// lateSelection contains the late templates of a Namespace, to recognize templates that a change of labels adds.
type lateSelection struct {
	// labels is a hash of the labels for which the templates are late; empty before the first pass.
	labels    string
	templates []string
}

// clone returns a copy, so that a pass does not change the memory of another pass.
func (m Memory) clone() Memory {
	m.Created, m.Granted, m.Restorations = maps.Clone(m.Created), maps.Clone(m.Granted), maps.Clone(m.Restorations)
	m.Absences, m.Failures = maps.Clone(m.Absences), maps.Clone(m.Failures)
	m.Differences, m.Unconfirmed = maps.Clone(m.Differences), maps.Clone(m.Unconfirmed)
	return m
}

// Recorded returns the memory after the Namespace has recorded its objects.
func (m Memory) Recorded() Memory {
	m.Created, m.Granted = nil, nil
	return m
}

// rememberSince returns since when something lasts: since the time that an earlier pass has remembered, or from now on.
// The next pass remembers it, too.
func rememberSince[M ~map[K]time.Time, K comparable](known M, next *M, key K, now time.Time) time.Time {
	since, ok := known[key]
	if !ok {
		since = now
	}
	template.Put(next, key, since)
	return since
}

// startOnce starts something now, unless it has started already, and returns the time since then.
func startOnce(start *time.Time, now time.Time) time.Duration {
	if start.IsZero() {
		*start = now
	}
	return now.Sub(*start)
}

// isAbsent reports whether something has been absent from the Namespace long enough to be removed.
func (p *Plan) isAbsent(key absenceKey) bool {
	since := rememberSince(p.Memory.Absences, &p.absent, key, p.Now)
	remaining := max(since.Add(initialization.DeregistrationDelay).Sub(p.Now), 0)
	p.retry(remaining)
	return remaining == 0
}

// untilNextFullPass returns the time until the next full pass; 0 if it is due. The first full pass of a Namespace is at
// a time that depends on its UID, so that not all Namespaces are compared at the same time.
func (m *Memory) untilNextFullPass(namespace types.UID, interval time.Duration, now time.Time) time.Duration {
	if m.NextFullPass.IsZero() {
		m.NextFullPass = now.Add(1 + spread(namespace, interval))
	}
	return max(m.NextFullPass.Sub(now), 0)
}

// spread returns a part of an interval that differs between Namespaces.
func spread(namespace types.UID, interval time.Duration) time.Duration {
	hash := uint64(0)
	for _, digit := range template.HashOf(namespace) {
		hash = hash*31 + uint64(digit)
	}
	return time.Duration(hash % uint64(max(interval, 1)))
}

// Update replaces the late templates. It returns those that were added when the labels changed. The first pass over a
// Namespace that is older than the operator's first pass adds none: an earlier process has reported them. A Namespace
// that was created in the second of this pass is new.
func (l *lateSelection) Update(namespace *corev1.Namespace, templates []string, start time.Time) (added []string) {
	known := *l
	*l = lateSelection{labels: template.HashOf(namespace.Labels), templates: templates}
	isFirst := known.labels == ""
	if isFirst && namespace.CreationTimestamp.Time.Before(start.Truncate(time.Second)) || known.labels == l.labels {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(templates), func(name string) bool {
		return slices.Contains(known.templates, name)
	})
}
