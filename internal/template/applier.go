// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

const (
	// maxObjects limits the objects of all templates in a Namespace, whose annotation records them.
	maxObjects = 256

	// syncRetry is the time until the next pass if a watch has not listed all objects yet.
	syncRetry = 50 * time.Millisecond
	// syncTimeout is the time after which this is a problem. Other templates are then applied.
	syncTimeout = 2 * time.Second
)

// Applier applies templates to Namespaces.
type Applier struct {
	Objects  *Objects
	Writer   *Writer
	Sources  *Sources
	Grants   *Grants
	Programs *Programs
	Rollouts *Rollouts
	Recorder Recorder
	Clock    clock.PassiveClock
	// ServiceAccounts reads the ServiceAccounts in the system namespace.
	ServiceAccounts client.Reader
	// Namespaces reads Namespaces from the cache.
	Namespaces client.Reader
	// Live confirms deletions with the API server.
	Live client.Reader
	// WatchPermissions are the types that the operator may watch.
	WatchPermissions WatchPermissions
	// SystemNamespace is the namespace of the operator.
	SystemNamespace string
	// FullPass is the time between two full passes over a Namespace.
	FullPass time.Duration

	limits  limits
	rounds  rounds
	waiting waiting
	// started is since when new Namespaces are processed.
	started waiting
	// unsynced is since when Namespaces wait for watches that have just started.
	unsynced waiting
	states   states
	full     fullPasses
	// creations are known until the Namespace records them.
	creations creations
	absences  absences
	late      lateSelections
}

// Result is the outcome of a pass over one Namespace.
type Result struct {
	// State is what the Namespace contains now.
	State State
	// Templates are the outcomes of the applicable templates, sorted by name.
	Templates []Outcome
	// Kept are objects that are no longer recorded and that the operator has not created.
	Kept []Problem
	// Late are the names of the templates that select the Namespace since its labels have changed, but are not applied.
	Late []string
	// Refusal is why the initialization of the Namespace must fail; empty if it must not.
	Refusal string
	// Elapsed is the time since the first pass over a new Namespace.
	Elapsed time.Duration
	// RetryAfter is the time until the next pass; 0 if a watch event triggers it.
	RetryAfter time.Duration
}

// Outcome is the outcome of a pass for one template.
type Outcome struct {
	Template string
	uid      types.UID
	// Revision is the revision that the Namespace should contain now.
	Revision string
	// Problems are why the Namespace does not contain all objects.
	Problems []Problem
	// Waiting are objects that exist but are not effective. A new Namespace does not open before.
	Waiting []Problem
	// TimedOut are objects that are not effective within the time limit of the template.
	TimedOut []Problem
}

// HasFailed reports whether the Namespace does not contain all objects.
func (r Result) HasFailed() bool {
	return slices.ContainsFunc(r.Templates, func(outcome Outcome) bool { return isIncomplete(outcome.Problems) })
}

// Blocking returns the first problem that prevents a new Namespace from opening, or nil.
func (r Result) Blocking() *Problem {
	for _, result := range r.Templates {
		for _, found := range slices.Concat(result.Problems, result.Waiting) {
			if found.Reason != ReasonClaimed {
				return &found
			}
		}
	}
	return nil
}

// isUnsynced reports whether a watch has not listed all objects yet.
func (r Result) isUnsynced() bool {
	return slices.ContainsFunc(r.Templates, func(outcome Outcome) bool {
		return slices.ContainsFunc(outcome.Problems, func(found Problem) bool { return found.Reason == ReasonNotSynced })
	})
}

// retry sets the time until the next pass if it is earlier.
func (r *Result) retry(after time.Duration) {
	if after > 0 && (r.RetryAfter == 0 || after < r.RetryAfter) {
		r.RetryAfter = after
	}
}

// pass is one pass over a Namespace.
type pass struct {
	*Applier
	namespace      *corev1.Namespace
	isInitializing bool
	state          State
	result         Result
	// claims has the templates that contain an object.
	claims map[objectKey]int
	// sources has the sources of copies that are in the Namespace itself. They are not deleted.
	sources map[objectKey]bool
	// planned has the revisions that the Namespace gets later, by template.
	planned map[string]*compiled
	// absent is what the Namespace no longer contains although no template has changed.
	absent map[absenceKey]bool
	// isUnclaimed is true if it is unknown which objects a template contains.
	isUnclaimed bool
	// isFull is true in a full pass.
	isFull bool
	count  int
}

// applied is the outcome of the writes for one template.
type applied struct {
	template *v1alpha1.NamespaceTemplate
	position int
	recorded Entry
	objects  []ObjectState
	want     []desired
	// names are the names of all objects of the revision, also of those that the Namespace does not contain.
	names sets.Set[string]
	// isPartial is true if some objects are created only after the Namespace opens.
	isPartial bool
}

// Apply applies all applicable templates to a Namespace. It returns an error if the Namespace cannot be
// processed at all; errors that concern one object are problems in the result.
func (a *Applier) Apply(
	ctx context.Context, namespace *corev1.Namespace, templates []v1alpha1.NamespaceTemplate,
) (Result, error) {
	state, err := a.states.get(namespace)
	if err != nil {
		return Result{}, err
	}
	isInitializing := IsInitializedHere(namespace)
	p := &pass{
		Applier: a, namespace: namespace, isInitializing: isInitializing, state: state,
		result: Result{State: State{}}, claims: map[objectKey]int{}, absent: map[absenceKey]bool{},
		sources: map[objectKey]bool{}, planned: map[string]*compiled{},
	}
	selected := a.applicable(templates, namespace, state)
	a.Rollouts.forget(namespace.UID, selected...)
	if isInitializing {
		p.result.Elapsed = a.started.elapsed(namespace.UID, a.Clock.Now())
		refusal, err := a.limits.admit(ctx, a.Namespaces, a.Live, namespace, templates)
		if err != nil || refusal != "" {
			return Result{Refusal: refusal, RetryAfter: syncRetry}, err
		}
	} else {
		due := a.full.next(namespace.UID, a.FullPass, a.Clock.Now())
		p.isFull = due == 0
		p.result.retry(due)
	}
	var all []applied
	for _, template := range selected {
		done, err := p.applyTemplate(ctx, template)
		switch {
		case errors.Is(err, errNotSynced):
			return Result{State: state, RetryAfter: syncRetry, Templates: p.result.Templates}, errNotSynced
		case err != nil:
			return Result{}, err
		case done != nil:
			all = append(all, *done)
		}
	}
	// An object can move from one template to another. Nothing is deleted before all claims are known.
	for _, done := range all {
		p.finishTemplate(ctx, done)
		p.Rollouts.report(p.namespace.UID, p.result.Templates[done.position])
	}
	for _, name := range slices.Sorted(maps.Keys(state)) {
		if _, ok := p.result.State[name]; !ok {
			p.removeTemplate(ctx, name, templates)
		}
	}
	if isInitializing {
		p.awaitSelection(templates)
		a.states.set(namespace.UID, p.result.State, "")
	}
	a.absences.retain(namespace.UID, p.absent)
	p.result.Late = a.late.update(namespace, lateTemplates(templates, namespace, p.result.State), a.Clock.Now())
	if p.isFull {
		p.result.retry(a.full.done(namespace.UID, a.FullPass, a.Clock.Now()))
	}
	if !p.result.isUnsynced() {
		a.unsynced.forget(namespace.UID)
	}
	return p.result, nil
}

// IsNotSynced reports whether the pass must be repeated after Result.RetryAfter, because a watch has
// just started.
func IsNotSynced(err error) bool { return errors.Is(err, errNotSynced) }

// Retain forgets what is known about templates that no longer exist, and stops the watches of kinds that
// no template contains or that the API server does not serve any more. It reports whether watches that no
// template needs are still running; they are stopped after WatchRetention.
func (a *Applier) Retain(ctx context.Context, templates []v1alpha1.NamespaceTemplate) bool {
	uids, accounts, kinds := map[types.UID]bool{}, map[string]bool{}, map[schema.GroupVersionKind]bool{}
	for i := range templates {
		uids[templates[i].UID] = true
		accounts[templates[i].Spec.ServiceAccountName] = true
		for _, kind := range a.Programs.kinds(&templates[i], a.Rollouts.current(templates[i].UID)) {
			kinds[kind] = true
		}
	}
	a.Rollouts.retain(uids)
	a.Sources.retain(a.Programs.retain(uids), accounts)
	return a.Objects.retain(ctx, kinds, a.isServed)
}

// Unserved returns the kinds in a template that the API server does not serve, sorted.
func (a *Applier) Unserved(template *v1alpha1.NamespaceTemplate) []string {
	var unserved []string
	for _, kind := range a.Programs.latest(template).kinds {
		if !a.isServed(kind) {
			unserved = append(unserved, kind.String())
		}
	}
	return unserved
}

func (a *Applier) isServed(kind schema.GroupVersionKind) bool {
	_, err := a.Writer.mapping(kind)
	return err == nil || toProblem("", "", err).Reason != ReasonKindNotFound
}

// Forget forgets a Namespace that was deleted.
func (a *Applier) Forget(namespace *corev1.Namespace) {
	a.Objects.forget(namespace.Name)
	a.limits.forget(namespace.UID)
	a.rounds.forget(namespace.UID)
	a.waiting.forget(namespace.UID)
	a.started.forget(namespace.UID)
	a.Rollouts.forget(namespace.UID)
	a.unsynced.forget(namespace.UID)
	if state, err := a.states.get(namespace); err == nil {
		for _, template := range state {
			a.Grants.forget(template.Objects)
		}
	}
	a.states.forget(namespace.UID)
	a.creations.forget(namespace.UID)
	a.full.forget(namespace.UID)
	a.absences.retain(namespace.UID, nil)
	a.late.forget(namespace.UID)
}

// Recorded is called with the response to the request that recorded the state of a Namespace.
func (a *Applier) Recorded(namespace *corev1.Namespace, state State) {
	a.waiting.forget(namespace.UID)
	a.creations.forget(namespace.UID)
	a.states.set(namespace.UID, state, namespace.ResourceVersion)
}

// NotRecorded adds a problem to the result if the state of a Namespace could not be recorded, for example because its
// users leave no space for the annotation. The Namespace then does not count as updated.
func (a *Applier) NotRecorded(namespace *corev1.Namespace, result *Result, err error) {
	recorded, _ := ParseState(namespace)
	result.Kept = nil
	for i := range result.Templates {
		outcome := &result.Templates[i]
		if apiequality.Semantic.DeepEqual(recorded[outcome.Template], result.State[outcome.Template]) {
			continue
		}
		outcome.Problems = append(outcome.Problems, Problem{
			Template: outcome.Template, Reason: ReasonNotRecorded, Message: err.Error(),
		})
		a.Rollouts.report(namespace.UID, *outcome)
	}
}

// IsStale reports whether a Namespace from the cache is older than the operator's last write. The watch event
// for that write follows.
func (a *Applier) IsStale(namespace *corev1.Namespace) bool { return a.states.isStale(namespace) }

// State returns what a Namespace contains. The cache can be older than the operator's last write.
func (a *Applier) State(namespace *corev1.Namespace) (State, error) { return a.states.get(namespace) }

// applyTemplate applies one template, and adds the outcome to the result. It returns nil if the template
// cannot be, or must not be, applied.
func (p *pass) applyTemplate(ctx context.Context, template *v1alpha1.NamespaceTemplate) (*applied, error) {
	recorded := p.state[template.Name]
	revision, wait, ok := p.Rollouts.choose(template.UID, p.namespace, p.isInitializing, recorded, p.Clock.Now())
	p.result.retry(wait)
	position := len(p.result.Templates)
	p.result.Templates = append(p.result.Templates, Outcome{
		Template: template.Name, uid: template.UID, Revision: revision,
	})
	if !ok {
		p.isUnclaimed = true
		p.keep(template.Name, position, recorded)
		err := problemf(ReasonNotSynced, "the revision of the template is not recorded yet: %w", errNotSynced)
		return nil, p.fail(position, toProblem(template.Name, "", err), err)
	}
	isDone := recorded.Revision != "" && template.Spec.Sync.Mode == v1alpha1.SyncOnce
	if latest := p.Programs.latest(template); revision != latest.revision && !isDone {
		p.planned[template.Name] = latest
	}
	if !p.isInitializing && (revision == "" || isDone) {
		p.keep(template.Name, position, recorded)
		return nil, nil
	}
	template, program, err := p.at(ctx, template, revision)
	var want []desired
	var isPartial bool
	if err == nil {
		want, isPartial, err = p.desired(ctx, template, program)
	}
	if err != nil {
		p.isUnclaimed = true
		p.keep(template.Name, position, recorded)
		err = p.fail(position, toProblem(template.Name, "", err), err)
		p.Rollouts.report(p.namespace.UID, p.result.Templates[position])
		return nil, err
	}
	done := &applied{
		template: template, position: position, recorded: recorded, want: want, names: program.names, isPartial: isPartial,
	}
	for _, object := range want {
		state, err := p.applyObject(ctx, template, position, object, recorded.find(keyOf(object.manifest)))
		if state != nil {
			done.objects = append(done.objects, *state)
		}
		switch {
		case errors.Is(err, errUnconfirmed):
			p.result.retry(unconfirmedRetry)
		case err != nil:
			if err := p.fail(position, toProblem(template.Name, object.name, err), err); err != nil {
				return nil, err
			}
		}
	}
	return done, nil
}

// fail adds a problem to the result. It returns errors that concern the whole pass.
func (p *pass) fail(position int, found Problem, err error) error {
	if errors.Is(err, context.Canceled) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) ||
		errors.Is(err, errNotSynced) && p.unsynced.elapsed(p.namespace.UID, p.Clock.Now()) < syncTimeout {
		return err
	}
	result := &p.result.Templates[position]
	result.Problems = append(result.Problems, found)
	return nil
}

// keep keeps the recorded state of a template that cannot be, or must not be, applied.
func (p *pass) keep(name string, position int, recorded Entry) {
	for _, object := range recorded.Objects {
		p.claims[object.key()] = position
	}
	p.count += len(recorded.Objects)
	if recorded.Revision != "" || len(recorded.Objects) > 0 {
		p.result.State[name] = recorded
	}
}

// finishTemplate deletes obsolete objects, and records the state, after all objects of all templates were
// applied. If an object was never applied, or if the template contains no object at all, which is more likely to be a
// mistake, the obsolete objects remain recorded.
func (p *pass) finishTemplate(ctx context.Context, done applied) {
	template, result := done.template, &p.result.Templates[done.position]
	next := Entry{Revision: done.recorded.Revision, Objects: done.objects}
	remaining := obsolete(done.recorded, done.want, p.isNeeded)
	isComplete := hasApplied(done.want, done.objects, func(key objectKey) bool { return p.claims[key] != done.position })
	if isComplete && !p.isUnclaimed && len(done.want) > 0 {
		removable, absent := p.removable(template.Name, done.names, remaining)
		var problems []Problem
		if template.Spec.Removal.FromTemplate != v1alpha1.RemovalKeep {
			removable, problems = p.prune(ctx, template, result.Revision, removable)
			result.Problems = append(result.Problems, problems...)
			isComplete = len(removable) == 0
			absent = append(absent, removable...)
		}
		remaining = absent
	}
	next.Objects = append(next.Objects, remaining...)
	if isComplete && !isIncomplete(result.Problems) && !done.isPartial {
		next.Revision = result.Revision
	} else if next.Revision != result.Revision {
		next.Target = result.Revision
	}
	sortProblems(result.Problems)
	p.result.State[template.Name] = next
}

// isNeeded reports whether a template contains an object, or copies it from the Namespace.
func (p *pass) isNeeded(key objectKey) bool {
	_, ok := p.claims[key]
	return ok || p.sources[key]
}

// removable separates obsolete objects that may be removed now from those that must be absent for longer, because the
// revision contains them and only the labels or parameters of the Namespace exclude them, and from those that move to
// another template, whose rollout has not reached the Namespace.
func (p *pass) removable(
	template string, names sets.Set[string], obsolete []ObjectState,
) (removable, absent []ObjectState) {
	for _, object := range obsolete {
		key := object.key()
		if p.isPlanned(template, key) || names.Has(object.Name) && !p.isAbsent(absenceKey{template: template, object: key}) {
			absent = append(absent, object)
		} else {
			removable = append(removable, object)
		}
	}
	return removable, absent
}

// isPlanned reports whether the Namespace can get an object later with another template.
func (p *pass) isPlanned(template string, key objectKey) bool {
	for name, revision := range p.planned {
		if name != template && revision.mayContain(key) {
			return true
		}
	}
	return false
}
