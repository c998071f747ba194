// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/nscache"
)

// slotLifetime is how long after its slot a Namespace may be updated.
const slotLifetime = 5 * time.Second

// Plan specifies which revision of a template each Namespace gets.
type Plan struct {
	// Latest is the revision of the spec; empty if the spec is invalid.
	Latest string
	// Current is the revision that new Namespaces get; empty if there has never been a valid one.
	Current string
	// IsCanaryPhase is true while only the Namespaces that Rollout.Canary selects are updated.
	IsCanaryPhase bool
	Rollout       v1alpha1.TemplateRollout
}

// Rollouts decides when open Namespaces get a new revision. What it counts is rebuilt after a restart.
type Rollouts struct {
	mutex sync.Mutex
	byUID map[types.UID]*rollout
}

type rollout struct {
	Plan
	limiter *rate.Limiter
	// slots has the times from which Namespaces may be updated.
	slots map[types.UID]time.Time
	// failed has the Namespaces to which the latest revision cannot be applied.
	failed map[types.UID]bool
	// blocked has the Namespaces that prevent it themselves. They do not count for the rollout.
	blocked map[types.UID]bool
	// unselected has the Namespaces that record the template although it no longer selects them, and others has those
	// that are no canaries. The cache does not know the labels of partial Namespaces.
	unselected, others map[types.UID]bool
	// wasPaused is true if failures have paused the rollout since the last call of Set.
	wasPaused bool
}

// Set sets the plan of a template. It reports whether Namespaces may get another revision: if the plan has
// changed, or if the pause because of failures has ended.
func (r *Rollouts) Set(template types.UID, plan Plan) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.byUID == nil {
		r.byUID = map[types.UID]*rollout{}
	}
	known, ok := r.byUID[template]
	if !ok {
		known = &rollout{
			failed: map[types.UID]bool{}, blocked: map[types.UID]bool{}, unselected: map[types.UID]bool{},
			others: map[types.UID]bool{}, slots: map[types.UID]time.Time{},
		}
		r.byUID[template] = known
	}
	hasChanged := !ok || known.Latest != plan.Latest || known.Current != plan.Current ||
		known.IsCanaryPhase != plan.IsCanaryPhase || known.Rollout.Paused != plan.Rollout.Paused ||
		known.Rollout.PauseAfterFailures != plan.Rollout.PauseAfterFailures ||
		!apiequality.Semantic.DeepEqual(known.Rollout.Canary, plan.Rollout.Canary)
	if hasChanged {
		clear(known.others)
	}
	if known.Latest != plan.Latest {
		clear(known.failed)
		clear(known.blocked)
	}
	if hasChanged || known.Rollout.RatePerSecond != plan.Rollout.RatePerSecond {
		clear(known.slots)
		perSecond := max(plan.Rollout.RatePerSecond, 1)
		known.limiter = rate.NewLimiter(rate.Limit(perSecond), 1+int(perSecond)/10)
	}
	known.Plan = plan
	isPaused := known.hasTooManyFailures()
	hasResumed := known.wasPaused && !isPaused
	known.wasPaused = isPaused
	return hasChanged || hasResumed
}

// current returns the revision that new Namespaces get.
func (r *Rollouts) current(template types.UID) string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if known, ok := r.byUID[template]; ok {
		return known.Current
	}
	return ""
}

// IsPaused reports whether the rollout of a template is paused because of failures.
func (r *Rollouts) IsPaused(template types.UID) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	known, ok := r.byUID[template]
	return ok && known.hasTooManyFailures()
}

func (r *rollout) hasTooManyFailures() bool {
	return len(r.failed) >= int(max(r.Rollout.PauseAfterFailures, 1))
}

// choose returns the revision of a template that a Namespace gets now, and how long to wait for another
// one. The revision is empty if the Namespace must wait, and known is false if the template has no plan
// yet.
func (r *Rollouts) choose(
	template types.UID, namespace *corev1.Namespace, isInitializing bool, recorded Entry, now time.Time,
) (revision string, wait time.Duration, known bool) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	current, ok := r.byUID[template]
	if !ok {
		return "", 0, false
	}
	if !isInitializing && current.IsCanaryPhase && !IsCanary(&current.Rollout, namespace) {
		current.others[namespace.UID] = true
	} else {
		delete(current.others, namespace.UID)
	}
	switch {
	case isInitializing:
		return current.Current, 0, true
	case current.failed[namespace.UID] || current.blocked[namespace.UID]:
		// The pause because of failures ends when the revision has been applied to such Namespaces.
		return current.Latest, 0, true
	}
	has, next := recorded.target(), current.Latest
	if next == "" || next != current.Current && !current.mayUpdate(namespace) {
		// The latest revision is invalid, or it is not the turn of the Namespace.
		next = cmp.Or(has, current.Current)
	}
	if next == has {
		return has, 0, true
	}
	if delay := current.slot(namespace.UID, now).Sub(now); delay > 0 {
		return has, delay, true
	}
	delete(current.slots, namespace.UID)
	return next, 0, true
}

// slot returns the time from which a Namespace may be updated. Namespaces that have missed their slots,
// because the rollout was paused, get new ones.
func (r *rollout) slot(namespace types.UID, now time.Time) time.Time {
	at, ok := r.slots[namespace]
	if !ok || now.Sub(at) > slotLifetime {
		at = now.Add(r.limiter.ReserveN(now, 1).DelayFrom(now))
		r.slots[namespace] = at
	}
	return at
}

// mayUpdate reports whether a Namespace may get the latest revision, which is not proven.
func (r *rollout) mayUpdate(namespace *corev1.Namespace) bool {
	return !r.Rollout.Paused && !r.hasTooManyFailures() &&
		(!r.IsCanaryPhase || IsCanary(&r.Rollout, namespace))
}

// IsCanary reports whether a Namespace is updated first.
func IsCanary(rollout *v1alpha1.TemplateRollout, namespace *corev1.Namespace) bool {
	return rollout.Canary != nil && initialization.Selects(rollout.Canary, namespace.Labels)
}

// MayBeCanary reports whether a Namespace is updated first. The labels of a partial Namespace are unknown until the
// next pass over it.
func (r *Rollouts) MayBeCanary(template *v1alpha1.NamespaceTemplate, namespace *corev1.Namespace) bool {
	if !nscache.IsPartial(namespace) {
		return IsCanary(&template.Spec.Rollout, namespace)
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	known, ok := r.byUID[template.UID]
	return template.Spec.Rollout.Canary != nil && (!ok || !known.others[namespace.UID])
}

// report records whether a revision could be applied to a Namespace.
func (r *Rollouts) report(namespace types.UID, outcome Outcome) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	known, ok := r.byUID[outcome.uid]
	if !ok || outcome.Revision != known.Latest {
		return
	}
	delete(known.failed, namespace)
	delete(known.blocked, namespace)
	switch {
	case slices.ContainsFunc(outcome.Problems, func(found Problem) bool { return !found.isLocal() }):
		known.failed[namespace] = true
		known.wasPaused = known.wasPaused || known.hasTooManyFailures()
	case isIncomplete(outcome.Problems):
		known.blocked[namespace] = true
	}
}

// IsBlocked reports whether a Namespace prevents itself that it gets the latest revision of a template, or is no longer
// selected by it.
func (r *Rollouts) IsBlocked(template, namespace types.UID) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	known, ok := r.byUID[template]
	return ok && (known.blocked[namespace] || known.unselected[namespace])
}

// unselect records that a template no longer selects a Namespace that records it.
func (r *Rollouts) unselect(template, namespace types.UID) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if known, ok := r.byUID[template]; ok {
		known.unselected[namespace] = true
	}
}

// forget forgets a Namespace, except for the given templates.
func (r *Rollouts) forget(namespace types.UID, except ...*v1alpha1.NamespaceTemplate) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for uid, known := range r.byUID {
		delete(known.unselected, namespace)
		if !slices.ContainsFunc(except, func(t *v1alpha1.NamespaceTemplate) bool { return t.UID == uid }) {
			delete(known.failed, namespace)
			delete(known.blocked, namespace)
			delete(known.others, namespace)
			delete(known.slots, namespace)
		}
	}
}

// retain forgets the templates that no longer exist.
func (r *Rollouts) retain(templates map[types.UID]bool) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for uid := range r.byUID {
		if !templates[uid] {
			delete(r.byUID, uid)
		}
	}
}
