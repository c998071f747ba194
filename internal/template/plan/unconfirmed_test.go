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

// Users who change an object all the time must neither hide that it is not applied or deleted, nor stop a rollout.
func TestLastingUnconfirmed(t *testing.T) {
	g := NewWithT(t)
	memory, start := &Memory{}, time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	tmpl := &v1alpha1.NamespaceTemplate{}
	tmpl.Name = "team"
	// problems returns those of a pass in which a write, and the deletion of another object, are unconfirmed.
	problems := func(at time.Duration, isUnconfirmed bool) (applied, deleted []template.Problem) {
		p := NewPass(memory, wrappers.MakeNamespace("ns").Obj(), nil, start.Add(at))
		selected, removal := p.Add(tmpl), newRemoval(tmpl)
		if isUnconfirmed {
			object := wantConfigMap("config", "")
			object.Err = ErrUnconfirmed
			p.Unconfirmed(selected, object)
			old := wantConfigMap("old", "").Key()
			p.Removed(removal, template.ObjectState{Kind: old.Kind, Name: old.Name}, "", ErrUnconfirmed)
		}
		retry := p.Conclude(nil, nil, time.Hour, start).RetryAfter
		if isUnconfirmed {
			g.Expect(retry).To(BeNumerically(">", 0))
		} else {
			g.Expect(retry).To(BeZero())
		}
		return selected.Outcome.Problems, removal.problems
	}
	for _, begin := range []time.Duration{0, time.Hour} {
		for _, at := range []time.Duration{0, unconfirmedTimeout - time.Second} {
			applied, deleted := problems(begin+at, true)
			g.Expect(append(applied, deleted...)).To(BeEmpty())
		}
		applied, deleted := problems(begin+unconfirmedTimeout, true)
		g.Expect(applied).To(HaveLen(1))
		g.Expect(deleted).To(HaveLen(1))
		for _, problem := range append(applied, deleted...) {
			g.Expect(problem.Reason).To(Equal(v1alpha1.ReasonConflict))
			g.Expect(problem.IsLocal()).To(BeTrue())
			g.Expect(template.IsIncomplete([]template.Problem{problem})).To(BeTrue())
		}
		problems(begin+2*unconfirmedTimeout, false) // Then the time starts again.
	}
}
