// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

func TestRemovable(t *testing.T) {
	const delay = initialization.DeregistrationDelay
	object := func(name string) template.ObjectState {
		return template.ObjectState{Kind: configMaps.GroupKind(), Name: name}
	}
	start := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	namespace := wrappers.MakeNamespace("ns").Obj()
	namespace.UID = "uid"
	obsolete := []template.ObjectState{object("excluded"), object("dropped")}
	contents := Contents{object("excluded").Key(): {}}
	memory := &Memory{}
	passAt := func(at time.Time, objects []template.ObjectState) (removable, absent []template.ObjectState, retry time.Duration) {
		p := Plan{Snapshot: Snapshot{Namespace: namespace, Now: at}, Memory: *memory}
		removable, absent = p.removable("a", contents, objects)
		memory.Absences = p.absent
		return removable, absent, p.RetryAfter
	}
	for name, step := range map[string]struct {
		// gap is the time without the object, before which it was present for a moment if wasPresent is true.
		wasPresent    bool
		gap           time.Duration
		wantRemovable []template.ObjectState
		wantAbsent    []template.ObjectState
		wantRetry     time.Duration
	}{
		"excluded for too short a time": {
			gap: delay - 1, wantRemovable: obsolete[1:], wantAbsent: obsolete[:1], wantRetry: 1,
		},
		"excluded for the delay":         {gap: delay, wantRemovable: obsolete},
		"excluded again after a moment":  {gap: delay, wasPresent: true, wantRemovable: obsolete[1:], wantAbsent: obsolete[:1], wantRetry: 1},
		"the first pass after a restart": {wantRemovable: obsolete[1:], wantAbsent: obsolete[:1], wantRetry: delay},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			memory.Absences = nil
			passAt(start, obsolete)
			if step.wasPresent {
				passAt(start, nil)
				passAt(start.Add(1), obsolete)
			}
			if step.gap == 0 {
				memory.Absences = nil
			}
			removable, absent, retry := passAt(start.Add(step.gap), obsolete)
			g.Expect(removable).To(Equal(step.wantRemovable))
			g.Expect(absent).To(Equal(step.wantAbsent))
			g.Expect(retry).To(Equal(step.wantRetry))
			passAt(start, nil)
			g.Expect(memory.Absences).To(BeEmpty(), "what is present again is forgotten")
		})
	}
}
