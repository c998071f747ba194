// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// states has what the operator knows about Namespaces before the cache contains it. The operator writes
// the annotation of a new Namespace only when it opens, in the same request.
type states struct {
	mutex sync.Mutex
	byUID map[types.UID]ownState
}

type ownState struct {
	state State
	// resourceVersion is that of the Namespace that records the state; empty if none does.
	resourceVersion string
}

// get returns the state of a Namespace.
func (s *states) get(namespace *corev1.Namespace) (State, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	known, ok := s.byUID[namespace.UID]
	if ok && (known.resourceVersion == "" || isNewer(known.resourceVersion, namespace.ResourceVersion)) {
		return known.state, nil
	}
	delete(s.byUID, namespace.UID)
	return ParseState(namespace)
}

// isStale reports whether a Namespace is older than the last record of its state.
func (s *states) isStale(namespace *corev1.Namespace) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return isNewer(s.byUID[namespace.UID].resourceVersion, namespace.ResourceVersion)
}

func (s *states) set(namespace types.UID, state State, resourceVersion string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.byUID == nil {
		s.byUID = map[types.UID]ownState{}
	}
	s.byUID[namespace] = ownState{state: state, resourceVersion: resourceVersion}
}

func (s *states) forget(namespace types.UID) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	delete(s.byUID, namespace)
}
