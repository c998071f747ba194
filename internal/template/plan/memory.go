// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/nslifecycle/nslifecycle/internal/template"
)

// Memory is what the passes over a Namespace remember. It is lost when the operator stops.
type Memory struct {
	// FirstPass is when a new Namespace was first processed, FirstTurn when it first had a deadline, and UnsyncedSince
	// since when it waits for watches that have just started; zero if it is not.
	FirstPass, FirstTurn, UnsyncedSince time.Time
	// FullPass is when the next full pass is due. A full pass finds changes that the managedFields do not show.
	FullPass time.Time
	// Created has the UIDs of the objects that the operator has created, as the status code of the response shows,
	// until the Namespace records them. The objects of an earlier process count as adopted: whether a user has created
	// them meanwhile cannot be proven, also not if the intention had been recorded before.
	Created map[template.ObjectKey]types.UID
	// Granted has the UIDs of the RoleBindings that are effective in a new Namespace.
	Granted  sets.Set[types.UID]
	Rounds   rounds
	Absences Absences
	Failures failures
	// Differences has the objects that differ from their templates although they were applied.
	Differences map[template.ObjectKey]difference
	// Unconfirmed has since when each attempt to write or delete an object has met a concurrent change.
	Unconfirmed map[template.ObjectKey]time.Time
	Late        lateSelection
}

// clone returns a copy. Memory is a value: what one pass remembers does not change that of another one.
func (m Memory) clone() Memory {
	m.Created, m.Granted, m.Rounds = maps.Clone(m.Created), maps.Clone(m.Granted), maps.Clone(m.Rounds)
	m.Absences, m.Failures = maps.Clone(m.Absences), maps.Clone(m.Failures)
	m.Differences, m.Unconfirmed = maps.Clone(m.Differences), maps.Clone(m.Unconfirmed)
	return m
}

// Recorded returns the memory after the Namespace has recorded its objects.
func (m Memory) Recorded() Memory {
	m.Created, m.Granted = nil, nil
	return m
}

// elapsedSince returns the time since a start. If there is none, it is now.
func elapsedSince(start *time.Time, now time.Time) time.Duration {
	if start.IsZero() {
		*start = now
	}
	return now.Sub(*start)
}

// untilFullPass returns the time until the next full pass; 0 if it is due. The first full pass of a Namespace is at
// a time that depends on its UID, so that not all Namespaces are compared at the same time.
func (m *Memory) untilFullPass(namespace types.UID, interval time.Duration, now time.Time) time.Duration {
	if m.FullPass.IsZero() {
		m.FullPass = now.Add(1 + spread(namespace, interval))
	}
	return max(m.FullPass.Sub(now), 0)
}

// spread returns a part of an interval that differs between Namespaces.
func spread(namespace types.UID, interval time.Duration) time.Duration {
	hash := uint64(0)
	for _, digit := range template.HashOf(namespace) {
		hash = hash*31 + uint64(digit)
	}
	return time.Duration(hash % uint64(max(interval, 1)))
}

// addCreation remembers that the operator has created an object.
func (m *Memory) addCreation(key template.ObjectKey, object types.UID) {
	if m.Created == nil {
		m.Created = map[template.ObjectKey]types.UID{}
	}
	m.Created[key] = object
}

// addGranted remembers that a RoleBinding is effective.
func (m *Memory) addGranted(binding types.UID) {
	if m.Granted == nil {
		m.Granted = sets.New[types.UID]()
	}
	m.Granted.Insert(binding)
}
