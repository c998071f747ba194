// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/sets"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

func TestRemovable(t *testing.T) {
	const delay = initialization.DeregistrationDelay
	object := func(name string) ObjectState {
		return ObjectState{Name: name, APIVersion: "v1", Kind: "ConfigMap", ObjectName: name}
	}
	start := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	now := clocktesting.NewFakeClock(start)
	applier := &Applier{Clock: now}
	namespace := wrappers.MakeNamespace("ns").Obj()
	namespace.UID = "uid"
	obsolete := []ObjectState{object("excluded"), object("dropped")}
	passAt := func(at time.Time, objects []ObjectState) (removable, absent []ObjectState, retry time.Duration) {
		now.SetTime(at)
		p := &pass{Applier: applier, namespace: namespace, absent: map[absenceKey]bool{}}
		removable, absent = p.removable("a", sets.New("excluded", "included"), objects)
		applier.absences.retain(namespace.UID, p.absent)
		return removable, absent, p.result.RetryAfter
	}
	for name, step := range map[string]struct {
		// gap is the time without the object, before which it was present for a moment if wasPresent is true.
		wasPresent    bool
		gap           time.Duration
		wantRemovable []ObjectState
		wantAbsent    []ObjectState
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
			applier.absences = absences{}
			passAt(start, obsolete)
			if step.wasPresent {
				passAt(start, nil)
				passAt(start.Add(1), obsolete)
			}
			if step.gap == 0 {
				applier.absences = absences{}
			}
			removable, absent, retry := passAt(start.Add(step.gap), obsolete)
			g.Expect(removable).To(Equal(step.wantRemovable))
			g.Expect(absent).To(Equal(step.wantAbsent))
			g.Expect(retry).To(Equal(step.wantRetry))
			passAt(start, nil)
			g.Expect(applier.absences.since).To(BeEmpty(), "what is present again is forgotten")
		})
	}
}
