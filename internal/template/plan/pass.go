// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/render"
)

// Pass is what one pass over a Namespace knows and decides. Its methods are called in this order: Begin; for each
// template Add, SetRevision, Contain, and Decide for each object, or Keep; after the objects were written, Await for
// those that are not effective, and Expire for each template; Removals, and Removed for each object; Conclude. Without
// Removed, an object remains recorded.
type Pass struct {
	Memory         *Memory
	Namespace      *corev1.Namespace
	Now            time.Time
	IsInitializing bool
	// IsFull is true in a full pass.
	IsFull bool
	// State is what the Namespace records before the pass.
	State template.State
	// Selected are the templates that are applied, or kept as recorded, sorted by name.
	Selected []*Selected

	// turnStart is the start of the turn of the initializer. It is set only if a template has a deadline.
	turnStart time.Time
	// claims has the templates that contain an object.
	claims map[template.ObjectKey]*Selected
	// isUnclaimed is true if it is unknown which objects a template contains.
	isUnclaimed bool
	// planned has the objects that the Namespace can get later, by template.
	planned map[string]Contents
	// count is the number of objects of all templates.
	count int
	// absent is what the Namespace no longer contains although no template has changed.
	absent Absences
	// failures has since when the Namespace has the failures of this pass, and unconfirmed since when concurrent changes
	// have prevented the writes and deletions that they also prevent in this pass.
	failures    failures
	unconfirmed map[template.ObjectKey]time.Time
	result      Result
}

// Selected is a template that is applied to the Namespace.
type Selected struct {
	// Template has the ServiceAccount of the revision.
	Template *v1alpha1.NamespaceTemplate
	Outcome  Outcome
	// Objects are what the Namespace should contain; none if what it records is kept.
	Objects []*Object

	contents Contents
	// isPartial is true if some objects are created only after the Namespace is initialized.
	isPartial bool
	// isKept is true if what the Namespace records is kept.
	isKept  bool
	removal *Removal
}

// NewPass returns a pass over a Namespace that records a state.
func NewPass(memory *Memory, namespace *corev1.Namespace, state template.State, now time.Time) *Pass {
	p := &Pass{
		Memory: memory, Namespace: namespace, Now: now, IsInitializing: template.AwaitsTemplates(namespace), State: state,
		result: Result{State: template.State{}}, planned: map[string]Contents{},
		claims: map[template.ObjectKey]*Selected{}, failures: failures{},
	}
	if p.IsInitializing {
		p.result.Elapsed = ElapsedSince(&memory.FirstPass, now)
	}
	return p
}

// Begin determines when the turn of a new Namespace has started, if a deadline of a template counts from it, and
// whether the pass over an initialized Namespace is a full one.
func (p *Pass) Begin(selected []*v1alpha1.NamespaceTemplate, fullPass time.Duration) {
	if !p.IsInitializing {
		due := p.Memory.untilFullPass(fullPass, p.Now)
		p.IsFull = due == 0
		p.Retry(due)
		return
	}
	if !slices.ContainsFunc(selected, hasDeadline) {
		return
	}
	p.turnStart = initialization.TurnStart(p.Namespace, v1alpha1.TemplatesInitializer, p.Now)
	if p.turnStart.IsZero() {
		// The turn, or the first deadline, is new.
		p.turnStart = p.Now.Add(-ElapsedSince(&p.Memory.FirstTurn, p.Now))
		p.result.TurnStart = p.turnStart
	}
}

// Retry sets the time until the next pass if it is earlier.
func (p *Pass) Retry(after time.Duration) { p.result.Retry(after) }

// Add adds a template.
func (p *Pass) Add(tmpl *v1alpha1.NamespaceTemplate) *Selected {
	added := &Selected{Template: tmpl, Outcome: Outcome{
		Template: tmpl.Name, UID: tmpl.UID, Generation: tmpl.Generation,
		IsCanary: IsCanary(&tmpl.Spec.Rollout, p.Namespace),
	}}
	p.Selected = append(p.Selected, added)
	return added
}

// SetRevision sets the revision that the Namespace gets; empty if it gets none yet. It reports whether its objects must
// be applied. Otherwise, what the Namespace records is kept.
func (p *Pass) SetRevision(selected *Selected, revision, latest string, latestContents Contents) (mustApply bool) {
	tmpl := selected.Template
	selected.Outcome.Revision = revision
	isDone := p.State[tmpl.Name].Revision != "" && tmpl.Spec.Sync.Mode == v1alpha1.SyncOnce
	if revision != latest && !isDone {
		p.planned[tmpl.Name] = latestContents
	}
	if !p.IsInitializing && (revision == "" || isDone) {
		p.keep(selected)
		return false
	}
	return true
}

// Keep keeps what the Namespace records of a template, because it is unknown what it contains.
func (p *Pass) Keep(selected *Selected) {
	p.isUnclaimed = true
	p.keep(selected)
}

func (p *Pass) keep(selected *Selected) {
	selected.isKept = true
	recorded := p.State[selected.Template.Name]
	for _, object := range recorded.Objects {
		p.claims[object.Key()] = selected
	}
	p.count += len(recorded.Objects)
}

// Contain sets the metadata and the objects of a template, which can contain only those in contents. Before the
// initialization ends, objects that are created afterwards are omitted. An object that another template contains has an
// error, which is reported on both. The first by name is applied.
func (p *Pass) Contain(selected *Selected, contents Contents, metadata []*Object, rendered []render.Object) error {
	desired := template.DesiredIn(p.IsInitializing, rendered)
	selected.isPartial = desired.IsPartial
	p.count += len(metadata) + len(desired.Objects)
	if err := template.CheckCount(p.count); err != nil {
		return err
	}
	selected.contents, selected.Objects = contents, metadata
	for _, object := range desired.Objects {
		selected.Objects = append(selected.Objects, newObject(object))
	}
	for _, object := range selected.Objects {
		p.claim(selected, object)
	}
	return nil
}

func (p *Pass) claim(selected *Selected, object *Object) {
	key := object.Key()
	winner, ok := p.claims[key]
	if !ok {
		p.claims[key] = selected
		object.Recorded = p.State[selected.Template.Name].Find(key)
		return
	}
	describe := func(with string) string {
		return fmt.Sprintf("template %q also contains %s %q; template %q is applied, because its name is first",
			with, object.Manifest.GetKind(), object.Manifest.GetName(), winner.Template.Name)
	}
	object.Err = template.Problemf(v1alpha1.ReasonClaimedByTemplate, "%s", describe(winner.Template.Name))
	winner.AddProblem("", template.Problemf(v1alpha1.ReasonClaimedByTemplate, "%s", describe(selected.Template.Name)))
	selected.AddProblem(object.Name, object.Err)
}

// Unconfirmed makes another pass repeat the decision about an object, because the cache is stale. A new Namespace waits
// for it.
func (p *Pass) Unconfirmed(selected *Selected, object *Object) {
	lasting := p.retryUnconfirmed(object.Key())
	switch {
	case p.IsInitializing:
		selected.Outcome.Waiting = append(selected.Outcome.Waiting,
			template.ToProblem(selected.Template.Name, object.Name, object.Err))
	case lasting != nil:
		selected.AddProblem(object.Name, lasting)
	}
}

// retryUnconfirmed makes another pass repeat a write or deletion. It returns a problem if other clients have prevented
// it for long: users of a Namespace who change it all the time must neither hide that nor stop a rollout.
func (p *Pass) retryUnconfirmed(key template.ObjectKey) error {
	p.Retry(UnconfirmedRetry)
	since, ok := p.Memory.Unconfirmed[key]
	if !ok {
		since = p.Now
	}
	if p.unconfirmed == nil {
		p.unconfirmed = map[template.ObjectKey]time.Time{}
	}
	p.unconfirmed[key] = since
	if p.Now.Sub(since) < unconfirmedTimeout {
		return nil
	}
	return template.Problemf(v1alpha1.ReasonConflict, "other clients change %s %q, or the namespace, in each attempt to "+
		"apply or delete it", key.Kind.Kind, key.Name)
}

// AddProblem adds why the Namespace does not contain an object; all of them if it is empty.
func (s *Selected) AddProblem(object string, err error) {
	s.Outcome.Problems = append(s.Outcome.Problems, template.ToProblem(s.Template.Name, object, err))
}

// Decide decides what is done with an object. Its metadata in the cluster is nil if no object with its name has the
// label of a template. Decide returns a problem if the object cannot be applied now.
func (p *Pass) Decide(selected *Selected, object *Object, current *Observed) error {
	key, name := object.Key(), selected.Template.Name
	object.Own = Ownership{
		Namespace: p.Namespace.UID, IsInitializing: p.IsInitializing, Recorded: object.Recorded,
		Earlier: p.State.Earlier(key, name), Created: p.Memory.Created[key], Current: current,
	}
	if object.Action = object.Own.Decide(object.Content); object.Action == WaitForDeletion {
		return template.Problemf(v1alpha1.ReasonObjectTerminating,
			"the current %s %q is being deleted", object.Manifest.GetKind(), object.Manifest.GetName())
	}
	return nil
}

// Conclude returns the result, and remembers what later passes need. The start is that of the first pass of the
// operator.
func (p *Pass) Conclude(
	templates []v1alpha1.NamespaceTemplate, removals []*Removal, fullPass time.Duration, start time.Time,
) Result {
	result := &p.result
	for _, selected := range p.Selected {
		name := selected.Template.Name
		if selected.removal != nil {
			result.State[name] = p.next(selected)
		} else if recorded, ok := p.State[name]; ok {
			result.State[name] = recorded
		}
		if entry, ok := result.State[name]; ok {
			result.State[name] = entry.WithLock(selected.Template, p.Namespace)
		}
		result.Templates = append(result.Templates, selected.Outcome)
	}
	for _, removal := range removals {
		if removal.selected == nil {
			p.concludeDeselected(removal)
		}
	}
	if p.IsInitializing {
		p.awaitSelection(templates)
	}
	p.Memory.Absences, p.Memory.Failures, p.Memory.Unconfirmed = p.absent, p.failures, p.unconfirmed
	result.Late = p.Memory.Late.Update(p.Namespace, lateTemplates(templates, p.Namespace, result.State), start)
	if p.IsFull {
		p.Memory.FullPass = p.Now.Add(fullPass)
		p.Retry(fullPass)
	}
	if !result.isUnsynced() {
		p.Memory.UnsyncedSince = time.Time{}
	}
	return *result
}

// awaitSelection adds the templates to the result that have selected a new Namespace in the request that created it,
// but do not select it now. If a label is absent only for a moment, the Namespace must not become initialized without a
// template.
func (p *Pass) awaitSelection(templates []v1alpha1.NamespaceTemplate) {
	for i := range templates {
		tmpl := &templates[i]
		if tmpl.DeletionTimestamp != nil || !template.HasSelected(tmpl, p.Namespace) || template.Selects(tmpl, p.Namespace) ||
			p.isAbsent(absenceKey{template: tmpl.Name}) {
			continue
		}
		p.result.Templates = append(p.result.Templates, Outcome{Template: tmpl.Name, Waiting: []template.Problem{{
			Template: tmpl.Name, Reason: v1alpha1.ReasonNotSelected,
			Message: "the template does not select the namespace any more",
		}}})
	}
	isBlocked := p.result.Blocking() != nil
	for i := range p.result.Templates {
		p.result.Templates[i].IsInitializing = isBlocked
	}
}
