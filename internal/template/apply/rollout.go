// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"maps"
	"slices"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nscache"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
)

// slotLifetime is how long after its slot a Namespace may be updated.
const slotLifetime = 5 * time.Second

// rollout is the rollout of a template, whose failures follow from the outcomes of the Namespaces.
type rollout struct {
	plan.Rollout
	// limiter is replaced when the rollout changes. The slots of the earlier one are invalid.
	limiter *rate.Limiter
	// wasPaused is true if failures have paused the rollout since the last call of SetRollout.
	wasPaused bool
}

// slot is the time from which a Namespace may get a revision.
type slot struct {
	limiter *rate.Limiter
	at      time.Time
}

// SetRollout sets the rollout of a template. It reports whether Namespaces may get another revision: if the rollout
// has changed, or if the pause because of failures has ended.
func (r *Records) SetRollout(uid types.UID, next plan.Rollout) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	known, ok := r.rollouts[uid]
	if !ok {
		known = &rollout{}
		if r.rollouts == nil {
			r.rollouts = map[types.UID]*rollout{}
		}
		r.rollouts[uid] = known
	}
	before, perSecond := known.Rollout, next.Settings.MaxNamespacesPerSecond
	isSameRate := before.Settings.MaxNamespacesPerSecond == perSecond
	before.Failing, before.FailingCanaries, before.Settings.MaxNamespacesPerSecond = 0, 0, perSecond
	before.CanariesUpdated = next.CanariesUpdated // IsCanaryPhase decides.
	hasChanged := !ok || !apiequality.Semantic.DeepEqual(before, next)
	if hasChanged || !isSameRate {
		known.limiter = rate.NewLimiter(rate.Limit(max(perSecond, 1)), 1+int(max(perSecond, 1))/10)
	}
	known.Rollout = next
	for _, record := range r.byName {
		known.count(record.outcome(uid), 1)
	}
	hasResumed := known.wasPaused && !known.HasFailurePause()
	known.wasPaused = known.HasFailurePause()
	return hasChanged || hasResumed
}

// count adds to the number of Namespaces in which the latest revision fails. The rollout can be unknown.
func (r *rollout) count(outcome plan.Outcome, number int) {
	if r != nil && r.Fails(outcome) {
		r.Failing += number
		if r.FailsInCanary(outcome) {
			r.FailingCanaries += number
		}
		r.wasPaused = r.wasPaused || r.HasFailurePause()
	}
}

// Rollout returns the rollout of a template; empty if it is not known yet.
func (r *Records) Rollout(uid types.UID) plan.Rollout {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if known, ok := r.rollouts[uid]; ok {
		return known.Rollout
	}
	return plan.Rollout{}
}

// chooseRevision sets the revision of a template that the Namespace gets now. It reports whether its objects must be
// applied.
func (p *pass) chooseRevision(selected *plan.Selected) (mustApply bool, err error) {
	tmpl, latest := selected.Template, p.Programs.latest(selected.Template)
	revision, delay, err := p.Records.next(
		p.record, tmpl.UID, p.State[tmpl.Name], p.IsInitializing, selected.Outcome.IsCanary)
	if err != nil {
		return false, err
	}
	p.Retry(delay)
	return p.SetRevision(selected, revision, latest.revision, latest.contents), nil
}

// next returns the revision of a template that a Namespace gets now, and the time until its turn to get another one. It
// returns template.ErrNotSynced if the template has no rollout yet.
func (r *Records) next(
	record *Record, uid types.UID, recorded template.Entry, isInitializing, isCanary bool,
) (revision string, delay time.Duration, err error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	current, ok := r.rollouts[uid]
	if !ok {
		return "", 0, template.Problemf(v1alpha1.ReasonWatchNotSynced,
			"the revision of the template is not recorded yet: %w", template.ErrNotSynced)
	}
	revision, needsSlot := current.Revision(recorded, record.outcome(uid), isInitializing, isCanary)
	if !needsSlot {
		return revision, 0, nil
	}
	now, reserved := r.Clock.Now(), record.slots[uid]
	if reserved.limiter != current.limiter || now.Sub(reserved.at) > slotLifetime {
		// A Namespace that has missed its slot, because the rollout was paused, gets another one.
		reserved = slot{current.limiter, now.Add(current.limiter.ReserveN(now, 1).DelayFrom(now))}
	}
	if delay := reserved.at.Sub(now); delay > 0 {
		if record.slots == nil {
			record.slots = map[types.UID]slot{}
		}
		record.slots[uid] = reserved
		return recorded.Newest(), delay, nil
	}
	if delete(record.slots, uid); len(record.slots) == 0 {
		record.slots = nil // An empty map would keep its memory.
	}
	return revision, 0, nil
}

// IsBlocked reports whether a Namespace prevents itself that it gets the latest revision of a template, or is no longer
// selected by it.
func (r *Records) IsBlocked(uid types.UID, namespace *corev1.Namespace) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	record, known := r.get(namespace), r.rollouts[uid]
	return record != nil && known != nil &&
		(slices.Contains(record.deselected, uid) || known.IsBlocked(record.outcome(uid)))
}

// MayBeCanary reports whether a Namespace is updated first. The labels of a partial Namespace are unknown until the
// next pass over it.
func (r *Records) MayBeCanary(tmpl *v1alpha1.NamespaceTemplate, namespace *corev1.Namespace) bool {
	if !nscache.IsPartial(namespace) {
		return plan.IsCanary(&tmpl.Spec.Rollout, namespace)
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if record := r.get(namespace); record != nil {
		if last := record.outcome(tmpl.UID); last.UID != "" && last.Generation == tmpl.Generation {
			return last.IsCanary
		}
	}
	return tmpl.Spec.Rollout.CanarySelector != nil
}

// retainRollouts forgets the rollouts of templates that no longer exist.
func (r *Records) retainRollouts(templates map[types.UID]bool) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	maps.DeleteFunc(r.rollouts, func(uid types.UID, _ *rollout) bool { return !templates[uid] })
}
