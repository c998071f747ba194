// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
)

// memories has what the passes over Namespaces remember.
type memories struct {
	mutex  sync.Mutex
	byName map[string]remembered
}

// remembered is what the passes over one Namespace remember.
type remembered struct {
	plan.Memory
	uid types.UID
	// isBusy is true during a pass.
	isBusy bool
}

// begin returns the memory for a pass over a Namespace. It returns false if another pass has not ended: each controller
// can have a request for a Namespace that has just been initialized.
func (m *memories) begin(namespace *corev1.Namespace) (plan.Memory, bool) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	known := m.byName[namespace.Name]
	switch {
	case known.isBusy:
		return plan.Memory{}, false
	case known.uid != namespace.UID: // The Namespace is new, or was recreated.
		known = remembered{uid: namespace.UID}
	}
	known.isBusy = true
	template.Put(&m.byName, namespace.Name, known)
	return known.Memory, true
}

// end stores the memory after a pass.
func (m *memories) end(namespace *corev1.Namespace, memory plan.Memory) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.byName[namespace.Name] = remembered{Memory: memory, uid: namespace.UID}
}

// forget forgets a Namespace that is being deleted or does not exist, unless a pass has not ended: the controller of
// the pass then has another request for the Namespace.
func (m *memories) forget(name string) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if !m.byName[name].isBusy {
		delete(m.byName, name)
	}
}
