// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

func TestMetadata(t *testing.T) {
	const wanted = "a"
	now := time.Unix(1000, 0)
	recorded := func(value string, isAdopted bool) *template.ObjectState {
		return &template.ObjectState{
			Kind: template.KindLabel, Name: "zone", UID: "namespace", Content: template.HashOf(value), Fields: template.HashOf(value),
			IsAdopted: isAdopted,
		}
	}
	tests := map[string]struct {
		isInitializing bool
		// current is the value of the Namespace; "-" if it has none.
		current  string
		recorded *template.ObjectState
		adopt    v1alpha1.AdoptionPolicy
		restored int

		action    Action
		problem   string
		isAdopted bool
	}{
		"new namespace, set by the API server":   {isInitializing: true, current: "a", action: ActionUpdate},
		"new namespace, changed since":           {isInitializing: true, current: "b", action: ActionUpdate},
		"new namespace, removed since":           {isInitializing: true, current: "-", action: ActionCreate},
		"existing namespace without it":          {current: "-", action: ActionCreate},
		"existing namespace with the same value": {current: "a", action: ActionCreate, isAdopted: true},
		"existing namespace with another value":  {current: "b", action: ActionCreate, problem: v1alpha1.ReasonConflict},
		"adopts another value": {
			current: "b", adopt: v1alpha1.AdoptAlways, action: ActionCreate, isAdopted: true,
		},
		"adopts nothing": {
			current: "a", adopt: v1alpha1.AdoptNever, action: ActionCreate, problem: v1alpha1.ReasonAlreadyExists,
		},
		"as recorded":                   {current: "a", recorded: recorded("a", false)},
		"another value in the template": {current: "b", recorded: recorded("b", false), action: ActionUpdate},
		"adopted, another value in the template": {
			current: "b", recorded: recorded("b", true), action: ActionUpdate, isAdopted: true,
		},
		"changed by another client": {current: "b", recorded: recorded("a", false), action: ActionRestore},
		"removed by another client": {current: "-", recorded: recorded("a", false), action: ActionRestore},
		"changed again and again": {
			current: "b", recorded: recorded("a", false), restored: maxRounds, action: ActionRestore, problem: v1alpha1.ReasonConflict,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			namespace := wrappers.MakeNamespace("shop").Obj()
			namespace.UID = "namespace"
			state := template.State{}
			if test.recorded != nil {
				state["team"] = template.Entry{Revision: "a", Objects: []template.ObjectState{*test.recorded}}
			}
			p := NewPass(&Memory{}, namespace, state, now)
			p.IsInitializing = test.isInitializing
			selected := p.Add(&v1alpha1.NamespaceTemplate{})
			selected.Template.Name, selected.Template.Spec.Sync.AdoptionPolicy = "team", test.adopt
			label := NewMetadata(template.KindLabel, "zone", wanted)
			g.Expect(p.Contain(selected, nil, []*Object{label}, nil)).To(Succeed())
			g.Expect(label.IsMetadata()).To(BeTrue())
			var current *Observed
			if test.current != "-" {
				current = &Observed{UID: namespace.UID, NamespaceUID: namespace.UID, Fields: template.HashOf(test.current)}
			}
			g.Expect(p.Decide(selected, label, current)).To(Succeed())
			g.Expect(label.Action).To(Equal(test.action))
			if test.action == NoAction {
				return
			}
			for range test.restored {
				p.Memory.Rounds.Record(label.Key(), &Observed{}, true, now)
			}
			err := p.CheckMetadata(selected.Template, label, now)
			if test.problem != "" {
				g.Expect(template.ToProblem("team", "", err).Reason).To(Equal(test.problem))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			isChanged := test.current != wanted
			p.AppliedMetadata(label, isChanged, now)
			g.Expect(label.Recorded).To(Equal(recorded(wanted, test.isAdopted)))
			_, rounds := p.Memory.Rounds.Next(label.Key(), v1alpha1.ConflictReport, now)
			g.Expect(rounds).To(Equal(map[bool]int{true: 1}[isChanged]))
		})
	}
}
