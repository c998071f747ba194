// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nscache"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
)

// slotLifetime is how long after its slot a Namespace may be updated.
const slotLifetime = 5 * time.Second

// Rollouts has the last outcomes of all Namespaces, and the rollouts of templates, whose failures follow from them.
type Rollouts struct {
	Clock clock.PassiveClock

	mutex  sync.Mutex
	byName map[string]*progress
	// byTemplate are the rollouts of templates, by UID.
	byTemplate map[types.UID]*rollout
	// isComplete is true after all Namespaces were processed since the start.
	isComplete bool
}

// progress is what is known about a Namespace in rollouts.
type progress struct {
	uid types.UID
	// outcomes are those of the last pass, and deselected the templates that the Namespace recorded although they no
	// longer applied. The cache does not know the labels of partial Namespaces.
	outcomes   []plan.TemplateOutcome
	deselected []types.UID
	// slots are the turns of the Namespace in the rollouts of templates.
	slots map[types.UID]slot
	// isProcessed is true after the first pass.
	isProcessed bool
}

// rollout is the rollout of a template.
type rollout struct {
	plan.Rollout
	// limiter is replaced when the rollout changes. The slots of the earlier one are invalid.
	limiter *rate.Limiter
	// wasPaused is true if failures have paused the rollout since the last call of Set.
	wasPaused bool
}

// slot is the time from which a Namespace may get a revision.
type slot struct {
	limiter *rate.Limiter
	at      time.Time
}

// get returns the progress of a Namespace; nil if it is unknown.
func (r *Rollouts) get(namespace *corev1.Namespace) *progress {
	if known := r.byName[namespace.Name]; known != nil && known.uid == namespace.UID {
		return known
	}
	return nil
}

func (r *Rollouts) getOrAdd(namespace *corev1.Namespace) *progress {
	known := r.get(namespace)
	if known == nil {
		if earlier := r.byName[namespace.Name]; earlier != nil { // The Namespace was recreated.
			r.setOutcomes(earlier, nil)
		}
		known = &progress{uid: namespace.UID}
		template.Put(&r.byName, namespace.Name, known)
	}
	return known
}

// Forget forgets a Namespace that is being deleted or does not exist. It returns the templates whose status has
// changed.
func (r *Rollouts) Forget(name string) (changed []string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	known := r.byName[name]
	if known == nil {
		return nil
	}
	delete(r.byName, name)
	return r.setOutcomes(known, nil)
}

// setOutcomes replaces the outcomes of a Namespace, and returns the templates whose status has changed.
func (r *Rollouts) setOutcomes(known *progress, outcomes []plan.TemplateOutcome) (changed []string) {
	before := known.outcomes
	known.outcomes = outcomes
	for _, outcome := range before {
		r.byTemplate[outcome.UID].count(outcome, -1)
	}
	for _, outcome := range outcomes {
		r.byTemplate[outcome.UID].count(outcome, 1)
	}
	return plan.ChangedTemplates(before, outcomes)
}

// outcome returns the last outcome for a template; empty if there is none. The Namespace can be unknown.
func (p *progress) outcome(templateUID types.UID) (last plan.TemplateOutcome) {
	if p != nil {
		for _, outcome := range p.outcomes {
			if outcome.UID == templateUID {
				return outcome
			}
		}
	}
	return last
}

// Processed records that a pass has ended without outcomes.
func (r *Rollouts) Processed(namespace *corev1.Namespace) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.getOrAdd(namespace).isProcessed = true
}

// Report stores the outcomes of a pass. It returns the problems that are new, and the templates whose status has
// changed.
func (r *Rollouts) Report(
	namespace *corev1.Namespace, outcome plan.Outcome,
) (problems []template.Problem, changed []string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	known := r.getOrAdd(namespace)
	before := plan.ProblemsOf(known.outcomes)
	changed = r.setOutcomes(known, plan.Tracked(outcome.Templates))
	known.deselected, known.isProcessed = outcome.Deselected, true
	return slices.DeleteFunc(plan.ProblemsOf(known.outcomes), func(found template.Problem) bool {
		return slices.Contains(before, found)
	}), changed
}

// IsComplete reports whether all Namespaces that are not being deleted were processed since the start: until then, the
// outcomes do not include all Namespaces.
func (r *Rollouts) IsComplete(namespaces []corev1.Namespace) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.isComplete = r.isComplete || !slices.ContainsFunc(namespaces, func(namespace corev1.Namespace) bool {
		known := r.byName[namespace.Name]
		return namespace.DeletionTimestamp == nil && (known == nil || !known.isProcessed)
	})
	return r.isComplete
}

// HasProcessed reports whether the current generation of a template was applied to a Namespace, or could not be.
func (r *Rollouts) HasProcessed(tmpl *v1alpha1.NamespaceTemplate, namespace string) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	last := r.byName[namespace].outcome(tmpl.UID)
	return last.UID != "" && last.Generation >= tmpl.Generation
}

// Summary returns the state of a template in all Namespaces.
func (r *Rollouts) Summary(templateName, revision string) plan.Summary {
	r.mutex.Lock()
	outcomes := map[string]plan.TemplateOutcome{}
	for name, known := range r.byName {
		for _, outcome := range known.outcomes {
			if outcome.Template == templateName {
				outcomes[name] = outcome
			}
		}
	}
	r.mutex.Unlock()
	return plan.Summarize(outcomes, revision)
}

// Set sets the rollout of a template. It reports whether Namespaces may get another revision: if the rollout
// has changed, or if the pause because of failures has ended.
func (r *Rollouts) Set(uid types.UID, next plan.Rollout) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	known, ok := r.byTemplate[uid]
	if !ok {
		known = &rollout{}
		template.Put(&r.byTemplate, uid, known)
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
	for _, namespace := range r.byName {
		known.count(namespace.outcome(uid), 1)
	}
	hasResumed := known.wasPaused && !known.HasFailurePause()
	known.wasPaused = known.HasFailurePause()
	return hasChanged || hasResumed
}

// count adds to the number of Namespaces in which the latest revision fails. The rollout can be unknown.
func (r *rollout) count(outcome plan.TemplateOutcome, number int) {
	if r != nil && r.Fails(outcome) {
		r.Failing += number
		if r.FailsInCanary(outcome) {
			r.FailingCanaries += number
		}
		r.wasPaused = r.wasPaused || r.HasFailurePause()
	}
}

// Get returns the rollout of a template; empty if it is not known yet.
func (r *Rollouts) Get(uid types.UID) plan.Rollout {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if known, ok := r.byTemplate[uid]; ok {
		return known.Rollout
	}
	return plan.Rollout{}
}

// choose returns the revision of a template that a Namespace gets now. It returns template.ErrNotSynced if the template
// has no rollout yet.
func (r *Rollouts) choose(
	namespace *corev1.Namespace, tmpl *v1alpha1.NamespaceTemplate, recorded template.Entry,
) (plan.Choice, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	current, ok := r.byTemplate[tmpl.UID]
	if !ok {
		return plan.Choice{}, template.Problemf(v1alpha1.ReasonWatchNotSynced,
			"the revision of the template is not recorded yet: %w", template.ErrNotSynced)
	}
	known := r.getOrAdd(namespace)
	revision, needsSlot := current.Revision(recorded, known.outcome(tmpl.UID), template.AwaitsTemplates(namespace),
		plan.IsCanary(&tmpl.Spec.Rollout, namespace))
	choice := plan.Choice{Revision: revision, Current: current.Current}
	if needsSlot {
		if choice.Delay = r.reserve(known, tmpl.UID, current.limiter); choice.Delay > 0 {
			choice.Revision = recorded.Newest()
		}
	}
	return choice, nil
}

// reserve returns the time until the slot of a Namespace in a rollout; 0 if it is now.
func (r *Rollouts) reserve(known *progress, uid types.UID, limiter *rate.Limiter) time.Duration {
	now, reserved := r.Clock.Now(), known.slots[uid]
	if reserved.limiter != limiter || now.Sub(reserved.at) > slotLifetime {
		// A Namespace that has missed its slot, because the rollout was paused, gets another one.
		reserved = slot{limiter, now.Add(limiter.ReserveN(now, 1).DelayFrom(now))}
	}
	if delay := reserved.at.Sub(now); delay > 0 {
		template.Put(&known.slots, uid, reserved)
		return delay
	}
	if delete(known.slots, uid); len(known.slots) == 0 {
		known.slots = nil // An empty map would keep its memory.
	}
	return 0
}

// Ignores reports whether the rollout of a template does not wait for a Namespace, because the Namespace itself
// prevents that it gets the latest revision, or is no longer selected.
func (r *Rollouts) Ignores(uid types.UID, namespace *corev1.Namespace) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	known, current := r.get(namespace), r.byTemplate[uid]
	return known != nil && current != nil &&
		(slices.Contains(known.deselected, uid) || current.Ignores(known.outcome(uid)))
}

// MayBeCanary reports whether a Namespace is updated first. The labels of a partial Namespace are unknown until the
// next pass over it.
func (r *Rollouts) MayBeCanary(tmpl *v1alpha1.NamespaceTemplate, namespace *corev1.Namespace) bool {
	if !nscache.IsPartial(namespace) {
		return plan.IsCanary(&tmpl.Spec.Rollout, namespace)
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if last := r.get(namespace).outcome(tmpl.UID); last.UID != "" && last.Generation == tmpl.Generation {
		return last.IsCanary
	}
	return tmpl.Spec.Rollout.CanarySelector != nil
}

// retain forgets the rollouts of templates that no longer exist.
func (r *Rollouts) retain(templates map[types.UID]bool) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	maps.DeleteFunc(r.byTemplate, func(uid types.UID, _ *rollout) bool { return !templates[uid] })
}
