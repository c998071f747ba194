// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"
	"time"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

// Plan contains the operations on a Namespace. [Compute] returns it. [Conclude] returns the outcome of the plan and of
// the results of its operations.
type Plan struct {
	Snapshot
	// Memory is the memory after the computation.
	Memory Memory
	// Operations are in the order in which they are executed.
	Operations []Operation
	// Unsynced is why nothing is decided in this pass; nil otherwise.
	Unsynced error
	// RetryAfter is the time until the next pass; 0 if a watch event triggers it.
	RetryAfter time.Duration

	isInitializing bool
	// isFullPass is true in a full pass.
	isFullPass bool
	// elapsed is the time since the first pass over a new Namespace.
	elapsed time.Duration
	// turnStart is the start of the turn of the initializer. It is set only if a template has a deadline. The Namespace
	// does not record it yet if isNewTurn is true.
	turnStart time.Time
	isNewTurn bool
	templates []templatePlan
	// deselected are the templates that the Namespace records although they no longer apply.
	deselected []removal
	// claims has the index of the template that contains an object.
	claims map[template.ObjectKey]int
	// isUnclaimed is true if it is unknown which objects a template contains.
	isUnclaimed bool
	// planned has the objects that the Namespace can get later, by template.
	planned map[string]Contents
	// count is the number of objects of all templates.
	count int
	// absent contains templates and objects that no longer belong to the Namespace although no template has changed.
	absent Absences
	// changes are the changes of labels and annotations of the Namespace in all operations.
	changes MetadataChanges
}

// MetadataChanges are new values of labels and annotations. The value nil removes a key.
type MetadataChanges map[template.ObjectKey]*string

// Of returns the changes of labels or annotations.
func (m MetadataChanges) Of(kind string) map[string]*string {
	changes := map[string]*string{}
	for key, value := range m {
		if key.Kind.Kind == kind {
			changes[key.Name] = value
		}
	}
	return changes
}

// isExpected reports whether all differences between two states of labels or annotations are among the changes.
func (m MetadataChanges) isExpected(kind string, before, now map[string]string) bool {
	expected := maps.Collect(maps.All(before))
	for key, value := range m.Of(kind) {
		switch current, exists := now[key]; {
		case value == nil && !exists:
			delete(expected, key)
		case value != nil && exists && current == *value:
			expected[key] = current
		}
	}
	return maps.Equal(expected, now)
}

// templatePlan is the plan for a template.
type templatePlan struct {
	*v1alpha1.NamespaceTemplate
	*TemplateSnapshot
	outcome TemplateOutcome
	objects []object
	// removal is nil if the record in the Namespace remains unchanged.
	removal *removal
	// failureCheck is the operation that confirms that the template has failed for too long; none if it has not.
	failureCheck int
}

// none is the index of no operation.
const none = -1

// object is the plan for an object.
type object struct {
	ObjectSnapshot
	// recorded is the record of the object in the Namespace; nil if there is none. The recorded content can belong to an
	// earlier revision.
	recorded *template.ObjectState
	own      Ownership
	action   Action
	// restoration describes what prevents that the label or annotation is set again.
	restoration restorationCheck
	// err is why the object is not applied.
	err error
	// write and wait are the indexes of the operations that write the object and that find whether it is effective.
	write, wait int
}

// retry sets the time until the next pass if it is earlier. A delay of 0 means that there is none.
func (p *Plan) retry(after time.Duration) {
	if after > 0 && (p.RetryAfter == 0 || after < p.RetryAfter) {
		p.RetryAfter = after
	}
}

// add adds an operation, and returns its index.
func (p *Plan) add(o Operation) int {
	p.Operations = append(p.Operations, o)
	return len(p.Operations) - 1
}

// operation returns an operation for a template that has not begun.
func (p *Plan) operation(tmpl *v1alpha1.NamespaceTemplate, choice Choice) Operation {
	return Operation{Template: tmpl, Namespace: p.Namespace, Choice: choice, changes: p.changes}
}

// addProblem adds why the Namespace does not contain an object; all of them if it is empty.
func (t *templatePlan) addProblem(object string, err error) {
	t.outcome.Problems = append(t.outcome.Problems, template.ToProblem(t.Name, object, err))
}

// hasApplied reports whether the content of each object that a template contains, and that no other template applies
// instead, was applied, or is applied by the given operations. Another client can have changed an object since.
func (p *Plan) hasApplied(index int, isApplied func(object) bool) bool {
	return !slices.ContainsFunc(p.templates[index].objects, func(o object) bool {
		isRecorded := o.recorded != nil && o.recorded.Content == o.Content
		return p.claims[o.Key()] == index && !isRecorded && !isApplied(o)
	})
}

// Action is what the operator does with an object. The values are also values of a metric label.
type Action string

// The actions that write an object.
const (
	// ActionCreate applies an object that is not recorded, without overriding other clients.
	ActionCreate Action = "Create"
	// ActionUpdate applies a changed manifest.
	ActionUpdate Action = "Update"
	// ActionRestore applies an object that another client has changed or deleted.
	ActionRestore Action = "Restore"
	// ActionDelete deletes an object that the template no longer contains.
	ActionDelete Action = "Delete"
)

// The other actions.
const (
	// NoAction means that the object is as recorded.
	NoAction Action = ""
	// WaitForDeletion means waiting for the deletion of an object that the Namespace does not record.
	WaitForDeletion Action = "Wait"
)

// Actions returns the actions that write an object.
func Actions() []Action { return []Action{ActionCreate, ActionUpdate, ActionRestore, ActionDelete} }
