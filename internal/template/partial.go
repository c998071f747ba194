// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// partial has the states of Namespaces that are not open yet. The operator writes the annotation only
// when a Namespace opens, in the same request.
type partial struct {
	mutex  sync.Mutex
	states map[types.UID]State
}

// get returns the state of a Namespace, or the given one if there is none.
func (p *partial) get(namespace types.UID, recorded State) State {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if state, ok := p.states[namespace]; ok {
		return state
	}
	return recorded
}

func (p *partial) set(namespace types.UID, state State) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.states == nil {
		p.states = map[types.UID]State{}
	}
	p.states[namespace] = state
}

func (p *partial) forget(namespace types.UID) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	delete(p.states, namespace)
}
