// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
)

// Records has what only this process knows about Namespaces: one Record for each name, under one lock. It is empty
// after a restart.
type Records struct {
	Clock clock.PassiveClock

	mutex  sync.Mutex
	byName map[string]*Record
	// rollouts are those of templates, by UID.
	rollouts map[types.UID]*rollout
	// start is when the first pass began.
	start time.Time
	// isComplete is true after all Namespaces were processed since the start.
	isComplete bool
}

// Record is what only this process knows about one Namespace. The pass between Begin and End uses the memory, and reads
// what only it writes, without the lock, which protects everything else.
type Record struct {
	plan.Memory

	name string
	uid  types.UID
	// isBusy is true during a pass, and isProcessed after the first one.
	isBusy, isProcessed bool
	// outcomes are those of the last pass, and deselected the templates that the Namespace recorded although they no
	// longer applied. The cache does not know the labels of partial Namespaces.
	outcomes   []plan.Outcome
	deselected []types.UID
	// slots are the turns of the Namespace in the rollouts of templates.
	slots map[types.UID]slot
	// state is what the Namespace contains, if the cache may not contain it yet. The operator writes the annotation of a
	// new Namespace only when it is initialized, in the same request.
	state template.State
	// version is the resourceVersion of the Namespace that records the state; empty if none does.
	version string
	// admitted has the names of the templates whose limits have admitted the Namespace.
	admitted sets.Set[string]
	// written has the metadata in the responses to the operator's writes, which the cache may not contain yet.
	written map[template.ObjectKey]written
}

// written is the metadata in the response to a write.
type written struct {
	plan.Observed
	at time.Time
}

// Begin returns the Record of a Namespace for a pass over it; nil if another pass has not ended. Each controller can
// have a request for a Namespace that has just been initialized.
func (r *Records) Begin(namespace *corev1.Namespace) *Record {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.byName == nil {
		r.byName, r.start = map[string]*Record{}, r.Clock.Now()
	}
	known := r.byName[namespace.Name]
	switch {
	case known != nil && known.isBusy:
		return nil
	case known != nil && known.uid != namespace.UID: // The Namespace was recreated.
		r.remove(known)
		known = nil
	}
	if known == nil {
		known = &Record{name: namespace.Name, uid: namespace.UID}
		r.byName[namespace.Name] = known
	}
	known.isBusy = true
	return known
}

// End is called after the pass.
func (r *Records) End(record *Record) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	record.isBusy = false
}

// Forget removes the Record of a Namespace that is being deleted or does not exist, unless a pass has not ended: the
// controller of the pass then has another request for the Namespace. It returns the templates whose status has changed.
func (r *Records) Forget(name string) (changed []string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	known := r.byName[name]
	if known == nil || known.isBusy {
		return nil
	}
	return r.remove(known)
}

func (r *Records) remove(record *Record) (changed []string) {
	delete(r.byName, record.name)
	return r.setOutcomes(record, nil)
}

// setOutcomes replaces the outcomes of a Namespace, and returns the templates whose status has changed.
func (r *Records) setOutcomes(record *Record, outcomes []plan.Outcome) (changed []string) {
	before := record.outcomes
	record.outcomes = outcomes
	for _, outcome := range before {
		r.rollouts[outcome.UID].count(outcome, -1)
	}
	for _, outcome := range outcomes {
		r.rollouts[outcome.UID].count(outcome, 1)
	}
	return plan.ChangedTemplates(before, outcomes)
}

// outcome returns the last outcome for a template; empty if there is none.
func (r *Record) outcome(templateUID types.UID) plan.Outcome {
	for _, outcome := range r.outcomes {
		if outcome.UID == templateUID {
			return outcome
		}
	}
	return plan.Outcome{}
}

// Processed records that a pass has ended without outcomes.
func (r *Records) Processed(record *Record) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	record.isProcessed = true
}

// Report stores the outcomes of a pass. It returns the problems that are new, and the templates whose status has
// changed.
func (r *Records) Report(record *Record, result plan.Result) (problems []template.Problem, changed []string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	known := plan.ProblemsOf(record.outcomes)
	changed = r.setOutcomes(record, plan.Tracked(result.Templates))
	record.deselected, record.isProcessed = result.Deselected, true
	return slices.DeleteFunc(plan.ProblemsOf(record.outcomes), func(found template.Problem) bool {
		return slices.Contains(known, found)
	}), changed
}

// IsComplete reports whether all Namespaces that are not being deleted were processed since the start: until then, the
// outcomes do not include all Namespaces.
func (r *Records) IsComplete(namespaces []corev1.Namespace) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.isComplete = r.isComplete || !slices.ContainsFunc(namespaces, func(namespace corev1.Namespace) bool {
		known := r.byName[namespace.Name]
		return namespace.DeletionTimestamp == nil && (known == nil || !known.isProcessed)
	})
	return r.isComplete
}

// HasProcessed reports whether the current generation of a template was applied to a Namespace, or could not be.
func (r *Records) HasProcessed(tmpl *v1alpha1.NamespaceTemplate, namespace string) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	known := r.byName[namespace]
	return known != nil && slices.ContainsFunc(known.outcomes, func(outcome plan.Outcome) bool {
		return outcome.UID == tmpl.UID && outcome.Generation >= tmpl.Generation
	})
}

// Summary returns the state of a template in all Namespaces.
func (r *Records) Summary(templateName, revision string) plan.Summary {
	return plan.Summarize(r.outcomesOf(templateName), revision)
}

func (r *Records) outcomesOf(templateName string) map[string]plan.Outcome {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	outcomes := map[string]plan.Outcome{}
	for name, known := range r.byName {
		for _, outcome := range known.outcomes {
			if outcome.Template == templateName {
				outcomes[name] = outcome
			}
		}
	}
	return outcomes
}

// State returns what a Namespace contains. The cache can be older than the operator's last write.
func (r *Records) State(namespace *corev1.Namespace) (template.State, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if known := r.get(namespace); known != nil && known.state != nil {
		if known.version == "" || isNewer(known.version, namespace.ResourceVersion) {
			return known.state, nil
		}
		known.state, known.version = nil, ""
	}
	return template.ParseState(namespace)
}

// IsStale reports whether a Namespace from the cache is older than the operator's last write. The watch event
// for that write follows.
func (r *Records) IsStale(namespace *corev1.Namespace) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	known := r.get(namespace)
	return known != nil && isNewer(known.version, namespace.ResourceVersion)
}

// get returns the Record of a Namespace; nil if there is none.
func (r *Records) get(namespace *corev1.Namespace) *Record {
	if known := r.byName[namespace.Name]; known != nil && known.uid == namespace.UID {
		return known
	}
	return nil
}

// Recorded is called with the response to the request that recorded the state of a Namespace.
func (r *Records) Recorded(record *Record, namespace *corev1.Namespace, state template.State) {
	record.Recorded()
	r.setState(record, state, namespace.ResourceVersion)
}

// setState stores what a Namespace contains, with the resourceVersion that records it.
func (r *Records) setState(record *Record, state template.State, version string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	record.state, record.version = state, version
}

// admit stores that the limits of templates have admitted a Namespace.
func (r *Records) admit(record *Record, templates []*v1alpha1.NamespaceTemplate) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	// Readers have the set without the lock.
	admitted := sets.New(record.admitted.UnsortedList()...)
	for _, tmpl := range templates {
		admitted.Insert(tmpl.Name)
	}
	record.admitted = admitted
}

// admitted returns the names of the templates whose limits have admitted Namespaces, by the UIDs of the Namespaces.
func (r *Records) admitted() map[types.UID]sets.Set[string] {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	admitted := map[types.UID]sets.Set[string]{}
	for _, known := range r.byName {
		if len(known.admitted) > 0 {
			admitted[known.uid] = known.admitted
		}
	}
	return admitted
}

// wrote stores the response to a write during a pass.
func (r *Records) wrote(namespace string, key template.ObjectKey, response plan.Observed, now time.Time) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	known := r.byName[namespace]
	if known == nil {
		return
	}
	if known.written == nil {
		known.written = map[template.ObjectKey]written{}
	}
	known.written[key] = written{Observed: response, at: now}
}

// isOwnWrite reports whether a version of an object is the response to the operator's last write.
func (r *Records) isOwnWrite(namespace string, key template.ObjectKey, version string) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	known := r.byName[namespace]
	if known == nil {
		return false
	}
	last, ok := known.written[key]
	return ok && last.ResourceVersion == version
}

// newest returns the version of an object in the cache, which is nil if it does not exist, or that of the operator's
// last write if it is newer.
func (r *Records) newest(
	namespace string, key template.ObjectKey, cached *plan.Observed, now time.Time,
) *plan.Observed {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	known := r.byName[namespace]
	if known == nil {
		return cached
	}
	last, ok := known.written[key]
	switch {
	case !ok:
		return cached
	case cached != nil && !isNewer(last.ResourceVersion, cached.ResourceVersion), now.Sub(last.at) > OwnWriteTimeout:
		known.forget(key)
		return cached
	}
	return &last.Observed
}

// AwaitsWrites reports whether the cache does not contain all writes of the operator to a Namespace yet. If it misses
// the creation and the deletion of an object, for example because its watch ends, no event follows.
func (r *Records) AwaitsWrites(record *Record) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return len(record.written) > 0
}

// deleted forgets the last write of an object that was deleted. One that was created since has another UID.
func (r *Records) deleted(namespace string, key template.ObjectKey, object types.UID) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if known := r.byName[namespace]; known != nil && known.written[key].UID == object {
		known.forget(key)
	}
}

// forget forgets the last write of an object. An empty map would keep its memory.
func (r *Record) forget(key template.ObjectKey) {
	if delete(r.written, key); len(r.written) == 0 {
		r.written = nil
	}
}
