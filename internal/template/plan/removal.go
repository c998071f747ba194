// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/render"
)

// ErrUnconfirmed means that the cache is stale, so nothing is deleted or adopted.
var ErrUnconfirmed = errors.New("the namespace or the template has changed")

// Contents are the objects that a Namespace can contain with a revision of a template. The name is empty if an
// expression computes it.
type Contents sets.Set[template.ObjectKey]

// has reports whether the Namespace can contain an object.
func (c Contents) has(key template.ObjectKey) bool {
	set := sets.Set[template.ObjectKey](c)
	return set.Has(key) || set.Has(template.ObjectKey{Kind: key.Kind})
}

// Removal has the recorded objects of a template that are deleted.
type Removal struct {
	Template *v1alpha1.NamespaceTemplate
	// Revision is that which no longer contains the objects; empty if the whole template no longer applies.
	Revision string
	// Objects are in the order of their deletion.
	Objects []template.ObjectState

	// selected is nil if the whole template no longer applies.
	selected *Selected
	// remaining are the other objects that remain recorded, and removed those of Objects that do not.
	remaining []template.ObjectState
	removed   sets.Set[template.ObjectKey]
	problems  []template.Problem
}

// Removals returns the objects to delete, after all objects of all templates were applied: an object can move from one
// template to another.
func (p *Pass) Removals(templates []v1alpha1.NamespaceTemplate) []*Removal {
	var removals []*Removal
	for _, selected := range p.Selected {
		if !selected.isKept {
			selected.removal = p.obsolete(selected)
			removals = append(removals, selected.removal)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.State)) {
		index := slices.IndexFunc(templates, func(t v1alpha1.NamespaceTemplate) bool { return t.Name == name })
		isSelected := slices.ContainsFunc(p.Selected, func(s *Selected) bool { return s.Template.Name == name })
		if index < 0 || isSelected {
			continue
		}
		if removal := p.deselected(&templates[index]); removal != nil {
			removals = append(removals, removal)
		}
	}
	return removals
}

// obsolete returns the removal of the recorded objects that a template no longer contains. If an object was never
// applied, or if the template contains no object at all, which is more likely to be a mistake, all remain. Objects that
// are retained are no longer recorded.
func (p *Pass) obsolete(selected *Selected) *Removal {
	tmpl := selected.Template
	removal := newRemoval(tmpl)
	removal.Revision, removal.selected = selected.Outcome.Revision, selected
	removal.remaining = p.unneeded(p.State[tmpl.Name], selected.Objects)
	hasApplied := p.hasApplied(selected) && !p.isUnclaimed
	if !hasApplied {
		return removal
	}
	desired := 0
	for _, object := range selected.Objects {
		if !object.IsMetadata() {
			desired++
		}
	}
	var removable, deleted []template.ObjectState
	removable, removal.remaining = p.removable(tmpl.Name, selected.contents, removal.remaining)
	for _, object := range removable {
		switch {
		case template.MayRemove(tmpl, object.Kind, desired):
			deleted = append(deleted, object)
		case desired == 0:
			removal.remaining = append(removal.remaining, object)
		}
	}
	p.schedule(removal, deleted)
	return removal
}

// deselected returns the removal of the objects of a template that no longer applies to the Namespace; nil if all or
// none remain recorded.
func (p *Pass) deselected(tmpl *v1alpha1.NamespaceTemplate) *Removal {
	p.result.Deselected = append(p.result.Deselected, tmpl.UID)
	recorded, policy := p.State[tmpl.Name], template.RetentionPolicy(tmpl)
	isLongEnough := tmpl.DeletionTimestamp != nil || p.isAbsent(absenceKey{template: tmpl.Name})
	switch {
	case !isLongEnough, policy == v1alpha1.RetentionDelete && p.isUnclaimed:
		p.result.State[tmpl.Name] = recorded
	case policy == v1alpha1.RetentionDelete:
		removal := newRemoval(tmpl)
		var removable []template.ObjectState
		removable, removal.remaining = p.removable(tmpl.Name, nil, p.unneeded(recorded, nil))
		p.schedule(removal, removable)
		return removal
	}
	return nil
}

func newRemoval(tmpl *v1alpha1.NamespaceTemplate) *Removal {
	return &Removal{Template: tmpl, removed: sets.Set[template.ObjectKey]{}}
}

// schedule adds objects to a removal. Those that the operator has not created are only forgotten.
func (p *Pass) schedule(removal *Removal, objects []template.ObjectState) {
	for _, object := range slices.SortedFunc(slices.Values(objects), compareDeletion) {
		if object.IsAdopted {
			p.forget(removal.Template.Name, object, keptNotCreated)
		} else {
			removal.Objects = append(removal.Objects, object)
		}
	}
}

// Removed records that an object of a removal does not exist any more, or why it is kept. With an error, the object
// remains recorded.
func (p *Pass) Removed(removal *Removal, object template.ObjectState, kept string, err error) {
	switch {
	case errors.Is(err, ErrUnconfirmed):
		if lasting := p.retryUnconfirmed(object.Key()); lasting != nil {
			removal.problems = append(removal.problems, template.ToProblem(removal.Template.Name, "", lasting))
		}
	case err != nil:
		removal.problems = append(removal.problems, template.ToProblem(removal.Template.Name, "",
			fmt.Errorf("failed to delete %s %q: %w", object.Kind.Kind, object.Name, err)))
	default:
		removal.removed.Insert(object.Key())
		if kept != "" {
			p.forget(removal.Template.Name, object, kept)
		}
	}
}

// outstanding returns the objects that were not removed.
func (r *Removal) outstanding() []template.ObjectState {
	return slices.DeleteFunc(slices.Clone(r.Objects), func(object template.ObjectState) bool {
		return r.removed.Has(object.Key())
	})
}

// forget reports an object that is no longer recorded, but remains.
func (p *Pass) forget(name string, object template.ObjectState, reason string) {
	p.result.Kept = append(p.result.Kept, template.Problem{
		Template: name, Reason: v1alpha1.ReasonObjectRetained,
		Message: fmt.Sprintf("the template no longer contains %s %q, which is not deleted because %s",
			object.Kind.Kind, object.Name, reason),
	})
}

// concludeDeselected records a template that no longer applies while objects remain.
func (p *Pass) concludeDeselected(removal *Removal) {
	name, objects := removal.Template.Name, append(removal.remaining, removal.outstanding()...)
	if len(objects) > 0 {
		p.result.State[name] = template.Entry{Revision: p.State[name].Revision, Objects: objects}
		p.result.Templates = append(p.result.Templates, Outcome{Template: name, Problems: removal.problems})
	}
}

// next returns what the Namespace records of a template after its removal.
func (p *Pass) next(selected *Selected) template.Entry {
	outcome, removal, outstanding := &selected.Outcome, selected.removal, selected.removal.outstanding()
	outcome.Problems = append(outcome.Problems, removal.problems...)
	template.SortProblems(outcome.Problems)
	objects := append(removal.remaining, outstanding...)
	for _, object := range selected.Objects {
		if object.Recorded != nil {
			objects = append(objects, *object.Recorded)
		}
	}
	isComplete := p.hasApplied(selected) && len(outstanding) == 0 && !template.IsIncomplete(outcome.Problems) &&
		!selected.isPartial
	return p.State[outcome.Template].Next(outcome.Revision, objects, isComplete)
}

// hasApplied reports whether the content of each object that a template contains, and that no other template applies
// instead, was applied. Another client can have changed an object since.
func (p *Pass) hasApplied(selected *Selected) bool {
	return !slices.ContainsFunc(selected.Objects, func(object *Object) bool {
		return p.claims[object.Key()] == selected &&
			(object.Recorded == nil || object.Recorded.Content != object.Content)
	})
}

// unneeded returns the recorded objects that neither the template nor another one contains.
func (p *Pass) unneeded(recorded template.Entry, objects []*Object) []template.ObjectState {
	keys := sets.New[template.ObjectKey]()
	for _, object := range objects {
		keys.Insert(object.Key())
	}
	var found []template.ObjectState
	for _, object := range recorded.Objects {
		_, isClaimed := p.claims[object.Key()]
		if !isClaimed && !keys.Has(object.Key()) {
			found = append(found, object)
		}
	}
	return found
}

// removable separates obsolete objects that may be removed now from those that must be absent for longer, because the
// revision contains them and only the labels or parameters of the Namespace exclude them, and from those that move to
// another template, whose rollout has not reached the Namespace.
func (p *Pass) removable(
	name string, contents Contents, obsolete []template.ObjectState,
) (removable, absent []template.ObjectState) {
	for _, object := range obsolete {
		key := object.Key()
		if p.isPlanned(name, key) || contents.has(key) && !p.isAbsent(absenceKey{template: name, object: key}) {
			absent = append(absent, object)
		} else {
			removable = append(removable, object)
		}
	}
	return removable, absent
}

// isPlanned reports whether the Namespace can get an object later with another template.
func (p *Pass) isPlanned(name string, key template.ObjectKey) bool {
	for other, contents := range p.planned {
		if other != name && contents.has(key) {
			return true
		}
	}
	return false
}

// isAbsent reports whether something has been absent from the Namespace long enough to be removed.
func (p *Pass) isAbsent(key absenceKey) bool {
	since, ok := p.Memory.Absences[key]
	if !ok {
		since = p.Now
	}
	if p.absent == nil {
		p.absent = Absences{}
	}
	p.absent[key] = since
	remaining := max(since.Add(initialization.DeregistrationDelay).Sub(p.Now), 0)
	p.Retry(remaining)
	return remaining == 0
}

// compareDeletion orders deletions by kind, in the reverse order of application: users lose their permissions before
// the restrictions are deleted.
func compareDeletion(a, b template.ObjectState) int {
	return cmp.Or(render.Rank(b.Kind)-render.Rank(a.Kind),
		strings.Compare(a.Kind.String(), b.Kind.String()), strings.Compare(a.Name, b.Name))
}
