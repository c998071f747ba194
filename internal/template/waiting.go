// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// readinessRetry is the time until the readiness of an object is checked again, if no watch event
// triggers it.
const readinessRetry = 5 * time.Millisecond

// maxReadinessRetry limits this time, which grows while a Namespace waits.
const maxReadinessRetry = 5 * time.Second

// waiting records since when new Namespaces wait for objects that exist to become effective.
type waiting struct {
	mutex sync.Mutex
	since map[types.UID]time.Time
}

// elapsed returns the time since the first call for a Namespace.
func (w *waiting) elapsed(namespace types.UID, now time.Time) time.Duration {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.since == nil {
		w.since = map[types.UID]time.Time{}
	}
	if _, ok := w.since[namespace]; !ok {
		w.since[namespace] = now
	}
	return now.Sub(w.since[namespace])
}

func (w *waiting) forget(namespace types.UID) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	delete(w.since, namespace)
}

// checkReadiness adds an object to the result that a new Namespace waits for.
func (p *pass) checkReadiness(
	ctx context.Context, template *v1alpha1.NamespaceTemplate, position int, want desired, current *observed,
) {
	readiness := template.Spec.Readiness
	if !p.isInitializing || readiness.Mode == v1alpha1.ReadinessApplied {
		return
	}
	err := p.checkEffective(ctx, p.namespace, want, current)
	if err == nil {
		return
	}
	result := &p.result.Templates[position]
	found := toProblem(template.Name, want.name, err)
	elapsed := p.waiting.elapsed(p.namespace.UID, p.Clock.Now())
	limit := readiness.TimeoutSeconds
	var expected *problem
	if limit != nil && elapsed >= time.Duration(*limit)*time.Second && errors.As(err, &expected) {
		result.TimedOut = append(result.TimedOut, found)
		return
	}
	delay := min(max(readinessRetry, elapsed/2), maxReadinessRetry)
	if limit != nil {
		delay = min(delay, max(time.Duration(*limit)*time.Second-elapsed, readinessRetry))
	}
	p.result.retry(delay)
	result.Waiting = append(result.Waiting, found)
}
