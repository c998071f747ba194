// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"time"

	"github.com/nslifecycle/nslifecycle/internal/template"
)

// Decision is what is done with an object that a template contains, or that a Namespace records for it.
type Decision struct {
	Key template.ObjectKey
	// Object is empty if the template does not contain the object.
	Object ObjectSnapshot
	// Action is NoAction if the object is as the template specifies, or is kept, and ActionDelete if it is deleted after
	// all objects of the template were applied.
	Action Action
	// Err is why the object is not applied.
	Err error
	// Operation is the exchange that applies the object; nil if there is none, also for a label or annotation.
	Operation *Operation
}

// Preview returns the final decisions about the objects of a template, after all delays of deletions. It returns an
// error if the contents of the template are unknown.
func Preview(s Snapshot, name string) (decisions []Decision, err error) {
	recorded := s.State[name].Objects
	memory := Memory{NextFullPass: s.Now.Add(time.Hour), Absences: Absences{absenceKey{template: name}: {}}}
	for _, object := range recorded {
		memory.Absences[absenceKey{template: name, object: object.Key()}] = time.Time{}
	}
	p := Compute(s, memory)
	var removed *removal
	for i := range p.templates {
		t := &p.templates[i]
		if t.Name != name {
			continue
		}
		if removed = t.removal; removed == nil {
			err = cmp.Or(s.Applicable[i].Unknown, template.CheckCount(p.count))
		}
		for _, o := range t.objects {
			decisions = append(decisions, p.decisionOf(o))
		}
	}
	for i := range p.deselected {
		if r := &p.deselected[i]; r.Name == name && len(r.deleted) > 0 {
			removed = r
		}
	}
	switch {
	case err != nil:
	case removed == nil:
		for _, object := range recorded {
			decisions = append(decisions, Decision{Key: object.Key()})
		}
	default:
		for _, object := range removed.deleted {
			decisions = append(decisions, Decision{Key: object.Key(), Action: ActionDelete})
		}
	}
	return decisions, err
}

func (p Plan) decisionOf(o object) Decision {
	decided := Decision{Key: o.Key(), Object: o.ObjectSnapshot, Action: o.action, Err: o.err}
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
