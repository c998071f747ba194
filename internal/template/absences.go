// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
)

// absences records since when Namespaces lack what makes them contain a template or an object: clients that replace a
// Namespace remove its labels for a moment. What was recorded is removed only after
// initialization.DeregistrationDelay. The times are in memory, so that no client can change them; after a restart, the
// delay starts again.
type absences struct {
	mutex sync.Mutex
	since map[types.UID]map[absenceKey]time.Time
}

// absenceKey identifies what a Namespace no longer contains.
type absenceKey struct {
	template string
	// object is empty if it is the template.
	object objectKey
}

// remaining returns how long something must still be absent from a Namespace before it is removed; 0 if it may be
// removed.
func (a *absences) remaining(namespace types.UID, key absenceKey, now time.Time) time.Duration {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if a.since == nil {
		a.since = map[types.UID]map[absenceKey]time.Time{}
	}
	if a.since[namespace] == nil {
		a.since[namespace] = map[absenceKey]time.Time{}
	}
	since, ok := a.since[namespace][key]
	if !ok {
		since = now
		a.since[namespace][key] = now
	}
	return max(since.Add(initialization.DeregistrationDelay).Sub(now), 0)
}

// retain forgets what is no longer absent from a Namespace.
func (a *absences) retain(namespace types.UID, absent map[absenceKey]bool) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	for key := range a.since[namespace] {
		if !absent[key] {
			delete(a.since[namespace], key)
		}
	}
	if len(a.since[namespace]) == 0 {
		delete(a.since, namespace)
	}
}

// isAbsent reports whether something has been absent from the Namespace long enough to be removed.
func (p *pass) isAbsent(key absenceKey) bool {
	p.absent[key] = true
	remaining := p.absences.remaining(p.namespace.UID, key, p.Clock.Now())
	p.result.retry(remaining)
	return remaining == 0
}

// awaitSelection adds the templates to the result that have selected a new Namespace in the request that created it,
// but do not select it now. If a label is absent only for a moment, the Namespace must not open without a template.
func (p *pass) awaitSelection(templates []v1alpha1.NamespaceTemplate) {
	for i := range templates {
		template := &templates[i]
		if template.DeletionTimestamp != nil || !hasSelected(template, p.namespace) || Selects(template, p.namespace) ||
			p.isAbsent(absenceKey{template: template.Name}) {
			continue
		}
		p.result.Templates = append(p.result.Templates, Outcome{Template: template.Name, Waiting: []Problem{{
			Template: template.Name, Reason: ReasonNotSelected, Message: "the template does not select the namespace any more",
		}}})
	}
}
