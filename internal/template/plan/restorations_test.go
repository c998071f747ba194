// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

func TestRestorations(t *testing.T) {
	const report, force = v1alpha1.ConflictReport, v1alpha1.ConflictForce
	tests := map[string]struct {
		policy   v1alpha1.ConflictPolicy
		restored int
		elapsed  time.Duration
		delay    time.Duration
		count    int
	}{
		"never restored":            {policy: report},
		"twice":                     {report, 2, 0, 0, 2},
		"three times":               {report, 3, 0, reportInterval, 3},
		"three times, a minute ago": {report, 3, time.Minute, reportInterval - time.Minute, 3},
		"the pause has ended":       {report, 3, reportInterval, 0, 0},
		"twice, long ago":           {report, 2, restorationWindow + 1, 0, 0},
		"forced":                    {force, 3, 0, firstForceDelay, 3},
		"forced after the delay":    {force, 3, firstForceDelay, 0, 3},
		"forced again":              {force, 4, 0, 2 * firstForceDelay, 4},
		"forced often":              {force, 30, 0, reportInterval, 30},
		"forced, long ago":          {force, 3, firstForceDelay + restorationWindow + 1, 0, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g, now := NewWithT(t), time.Now()
			var r restorations
			key := template.ObjectKey{Name: "config"}
			for range test.restored {
				r.record(key, &Observed{}, r.checkChanged(key, test.policy, now), now)
			}
			check := r.checkChanged(key, test.policy, now.Add(test.elapsed))
			g.Expect(check).To(Equal(restorationCheck{isCounted: true, delay: test.delay, count: test.count}))
		})
	}
}

// Another client can be responsible for the next restoration.
func TestConflictIsForgotten(t *testing.T) {
	g := NewWithT(t)
	var r restorations
	key := template.ObjectKey{Name: "config"}
	r.record(key, &Observed{}, r.checkChanged(key, v1alpha1.ConflictReport, start), start)
	r.setConflict(key, "rival")
	own := Ownership{Recorded: &template.ObjectState{UID: "1"}, Current: &Observed{UID: "1"}}
	g.Expect(r.check(key, own, v1alpha1.ConflictReport, start)).To(Equal(restorationCheck{isCounted: true, count: 1, conflict: "rival"}))
	r.record(key, &Observed{}, r.checkChanged(key, v1alpha1.ConflictReport, start), start)
	g.Expect(r.check(key, own, v1alpha1.ConflictReport, start)).To(Equal(restorationCheck{isCounted: true, count: 2}))
}

func TestUnrecordedRestorations(t *testing.T) {
	g, now := NewWithT(t), time.Now()
	var r restorations
	key := template.ObjectKey{Name: "config"}
	before, restored := &template.ObjectState{UID: "1", Fields: "before"}, &Observed{UID: "1", Fields: "ours"}
	g.Expect(r.isUnrecorded(key, before, restored)).To(BeFalse(), "not restored yet")
	r.record(key, restored, restorationCheck{isCounted: true}, now)
	for name, test := range map[string]struct {
		recorded   *template.ObjectState
		object     *Observed
		unrecorded bool
	}{
		"unrecorded":                       {before, &Observed{UID: "1", Fields: "ours", ResourceVersion: "2"}, true},
		"changed":                          {before, &Observed{UID: "1", Fields: "theirs"}, false},
		"deleted":                          {before, nil, false},
		"created again":                    {before, &Observed{UID: "2", Fields: "ours"}, false},
		"recorded, found by a full pass":   {&template.ObjectState{UID: "1", Fields: "ours"}, restored, false},
		"the UID is not recorded":          {&template.ObjectState{UID: "0", Fields: "ours"}, restored, true},
		"nothing is recorded":              {nil, restored, true},
		"nothing is recorded, but changed": {nil, &Observed{UID: "1", Fields: "theirs"}, false},
	} {
		g.Expect(r.isUnrecorded(key, test.recorded, test.object)).To(Equal(test.unrecorded), name)
	}
	r.record(key, &Observed{UID: "1", Fields: "ours again"}, restorationCheck{}, now.Add(time.Second))
	g.Expect(r[key]).To(Equal(restoration{count: 1, last: now, uid: "1", fields: "ours again"}))
}
