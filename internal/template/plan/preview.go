// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"github.com/nslifecycle/nslifecycle/internal/template"
)

// Decision is what a plan does with an object that a template contains.
type Decision struct {
	Object ObjectSnapshot
	// Action is NoAction if the object is as the template specifies.
	Action Action
	// Err is why the object is not applied.
	Err error
	// Operation is the exchange about an object; nil if the plan has none, also for a label or annotation.
	Operation *Operation
}

// Decisions returns what a plan does with the objects of a template, and the objects that are deleted after all objects
// of the template were applied. The objects are nil if what the Namespace records of the template is kept. The error is
// why it is unknown what the template contains.
func (p Plan) Decisions(name string) (objects []Decision, deleted []template.ObjectState, err error) {
	for i := range p.Applicable {
		s, t := &p.Applicable[i], &p.templates[i]
		if t.Name != name {
			continue
		}
		switch {
		case s.Unknown != nil:
			return nil, nil, s.Unknown
		case t.removal == nil:
			return nil, nil, template.CheckCount(p.count)
		}
		objects = []Decision{}
		for _, o := range t.objects {
			objects = append(objects, p.decisionOf(o))
		}
		return objects, deletedBy(t.removal), nil
	}
	for i := range p.deselected {
		if p.deselected[i].Name == name {
			deleted = deletedBy(&p.deselected[i])
		}
	}
	return nil, deleted, nil
}

func (p Plan) decisionOf(o object) Decision {
	decided := Decision{Object: o.ObjectSnapshot, Action: o.action, Err: o.err}
	switch {
	case o.write == none && o.IsMetadata(): // It is only recorded.
		decided.Action = NoAction
	case o.write != none && !o.IsMetadata():
		decided.Operation = &p.Operations[o.write]
		if decided.Operation.IsDone() {
			decided.Err = decided.Operation.Result.Err
		}
	}
	return decided
}

func deletedBy(r *removal) (deleted []template.ObjectState) {
	for _, object := range r.deleted {
		deleted = append(deleted, object.ObjectState)
	}
	return deleted
}

// Elapsed returns a memory for which everything that a Namespace records of a template has been absent long enough to
// be deleted, and no full pass is due: a preview shows what will happen in the end.
func Elapsed(name string, recorded template.Entry, now time.Time) Memory {
	m := Memory{FullPass: now.Add(time.Hour), Absences: Absences{absenceKey{template: name}: {}}}
	for _, object := range recorded.Objects {
		m.Absences[absenceKey{template: name, object: object.Key()}] = time.Time{}
	}
	return m
}
