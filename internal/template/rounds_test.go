// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0
package template

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

func TestRounds(t *testing.T) {
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
		"twice, long ago":           {report, 2, roundWindow + 1, 0, 0},
		"forced":                    {force, 3, 0, firstForceDelay, 3},
		"forced after the delay":    {force, 3, firstForceDelay, 0, 3},
		"forced again":              {force, 4, 0, 2 * firstForceDelay, 4},
		"forced often":              {force, 30, 0, reportInterval, 30},
		"forced, long ago":          {force, 3, firstForceDelay + roundWindow + 1, 0, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g, now := NewWithT(t), time.Now()
			var r rounds
			key := roundKey{namespace: namespaceUID, object: objectKey{name: "config"}}
			for range test.restored {
				r.record(key, &observed{}, true, now)
			}
			delay, count := r.next(key, test.policy, now.Add(test.elapsed))
			g.Expect(delay).To(Equal(test.delay))
			g.Expect(count).To(Equal(test.count))
			r.forget("other")
			g.Expect(r.byObject).To(HaveLen(min(test.count, 1)))
			r.forget(namespaceUID)
			g.Expect(r.byObject).To(BeEmpty())
		})
	}
}

func TestConflictIsDescribedOnce(t *testing.T) {
	g := NewWithT(t)
	var r rounds
	key := roundKey{namespace: namespaceUID}
	described := 0
	describe := func() string { described++; return "rival" }
	r.record(key, &observed{}, true, time.Now())
	g.Expect(r.conflict(key, describe)).To(Equal("rival"))
	g.Expect(r.conflict(key, describe)).To(Equal("rival"))
	g.Expect(described).To(Equal(1))
	r.record(key, &observed{}, true, time.Now())
	r.conflict(key, describe)
	g.Expect(described).To(Equal(2), "another client can be responsible for the next round")
}

func TestUnrecordedRestorations(t *testing.T) {
	g, now := NewWithT(t), time.Now()
	var r rounds
	key := roundKey{namespace: namespaceUID}
	before, restored := &ObjectState{UID: "1", Fields: "before"}, &observed{uid: "1", fields: "ours"}
	g.Expect(r.isUnrecorded(key, before, restored)).To(BeFalse(), "not restored yet")
	r.record(key, restored, true, now)
	for name, test := range map[string]struct {
		recorded   *ObjectState
		object     *observed
		unrecorded bool
	}{
		"unrecorded":                       {before, &observed{uid: "1", fields: "ours", resourceVersion: "2"}, true},
		"changed":                          {before, &observed{uid: "1", fields: "theirs"}, false},
		"deleted":                          {before, nil, false},
		"created again":                    {before, &observed{uid: "2", fields: "ours"}, false},
		"recorded, found by a full pass":   {&ObjectState{UID: "1", Fields: "ours"}, restored, false},
		"the UID is not recorded":          {&ObjectState{UID: "0", Fields: "ours"}, restored, true},
		"nothing is recorded":              {nil, restored, true},
		"nothing is recorded, but changed": {nil, &observed{uid: "1", fields: "theirs"}, false},
	} {
		g.Expect(r.isUnrecorded(key, test.recorded, test.object)).To(Equal(test.unrecorded), name)
	}
	r.record(key, &observed{uid: "1", fields: "ours again"}, false, now.Add(time.Second))
	g.Expect(r.byObject[key]).To(Equal(round{count: 1, last: now, uid: "1", fields: "ours again"}))
}

func TestFullPasses(t *testing.T) {
	g, now := NewWithT(t), time.Now()
	var f fullPasses
	const interval = time.Hour
	first := f.next(namespaceUID, interval, now)
	g.Expect(first).To(And(BeNumerically(">", 0), BeNumerically("<=", interval)))
	g.Expect(f.next(namespaceUID, interval, now.Add(first))).To(BeZero())
	g.Expect(f.next(namespaceUID, interval, now.Add(2*interval))).To(BeZero(), "a pass that failed is repeated")
	g.Expect(f.done(namespaceUID, interval, now)).To(Equal(interval))
	g.Expect(f.next(namespaceUID, interval, now.Add(time.Minute))).To(Equal(interval - time.Minute))
	f.forget(namespaceUID)
	g.Expect(f.times).To(BeEmpty())
}
