// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestIsProof(t *testing.T) {
	settledAt := now.Add(time.Second)
	tests := map[string]struct {
		change func(*Report)
		want   bool
	}{
		"clean, and begun when the namespace had settled": {change: func(*Report) {}, want: true},
		"begun the moment before":                         {change: func(r *Report) { r.Began = settledAt.Add(-1) }},
		"discovered the moment before":                    {change: func(r *Report) { r.Inventory.began = settledAt.Add(-1) }},
		"begun later":                                     {change: func(r *Report) { r.Began = settledAt.Add(time.Hour) }, want: true},
		"something remains": {change: func(r *Report) {
			r.Remaining = []Remaining{{Type: podsType, Count: 1}}
		}},
		"something went wrong":                {change: func(r *Report) { r.Errors = []error{errOutage} }},
		"there is more":                       {change: func(r *Report) { r.HasMore = true }},
		"discovery failed":                    {change: func(r *Report) { r.Inventory.DiscoveryError = errOutage }},
		"a group version could not be parsed": {change: func(r *Report) { r.Inventory.ParseError = errOutage }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			report := &Report{Began: settledAt, Inventory: &Inventory{began: settledAt}}
			test.change(report)
			NewWithT(t).Expect(report.IsProof(settledAt)).To(Equal(test.want))
		})
	}
}

func TestNextLook(t *testing.T) {
	slow := ResourceType{GroupVersionResource: widgetsType.GroupVersionResource, CanList: true}
	tests := map[string]struct {
		report Report
		// settledAt is when the namespace settles, counted from now.
		settledAt time.Duration
		want      time.Duration
	}{
		"there is more": {
			report: Report{HasMore: true, Remaining: []Remaining{{Type: podsType, Count: 1}}}, want: time.Millisecond,
		},
		"empty, and not settled":       {settledAt: 700 * time.Millisecond, want: 700 * time.Millisecond},
		"empty, and settled meanwhile": {settledAt: -time.Second, want: time.Millisecond},
		"watched": {
			report: Report{Remaining: []Remaining{{Type: podsType, Count: 1}}}, want: 15 * time.Second,
		},
		"watched, and not settled either": {
			report:    Report{Remaining: []Remaining{{Type: podsType, Count: 1}}},
			settledAt: time.Second, want: 15 * time.Second,
		},
		"a pod that goes soon": {
			report: Report{Remaining: []Remaining{{Type: podsType, Count: 1, Until: now.Add(5 * time.Second)}}},
			want:   15 * time.Second,
		},
		"a pod with a grace period": {
			report: Report{Remaining: []Remaining{
				{Type: podsType, Count: 1, Until: now.Add(30 * time.Second)}, {Type: widgetsType, Count: 1, Until: now},
			}},
			want: 31 * time.Second,
		},
		"a pod with a long grace period": {
			report: Report{Remaining: []Remaining{{Type: podsType, Count: 1, Until: now.Add(time.Hour)}}},
			want:   time.Minute,
		},
		"a pod that should have gone": {
			report: Report{Remaining: []Remaining{{Type: podsType, Count: 1, Until: now.Add(-time.Hour)}}},
			want:   15 * time.Second,
		},
		"a type that cannot be watched": {
			report: Report{Remaining: []Remaining{{Type: slow, Count: 1}, {Type: podsType, Count: 1}}},
			want:   2 * time.Second,
		},
		"a type that cannot be watched, and a pod": {
			report: Report{Remaining: []Remaining{
				{Type: podsType, Count: 1, Until: now.Add(time.Hour)}, {Type: slow, Count: 1},
			}},
			want: 2 * time.Second,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(test.report.NextLook(now.Add(test.settledAt), now)).To(Equal(test.want))
		})
	}
}

func TestReportErr(t *testing.T) {
	g := NewWithT(t)
	g.Expect((&Report{Inventory: &Inventory{}}).Err()).NotTo(HaveOccurred())
	for name, report := range map[string]*Report{
		"discovery":     {Inventory: &Inventory{DiscoveryError: errOutage}},
		"group version": {Inventory: &Inventory{ParseError: errOutage}},
		"content":       {Inventory: &Inventory{}, Errors: []error{errForbidden, errOutage}},
	} {
		g.Expect(report.Err()).To(MatchError(errOutage), name)
	}
}

// Errors keep their kind when they are told together.
func TestJoinObjectErrors(t *testing.T) {
	g := NewWithT(t)
	g.Expect(joinObjectErrors(podsType, nil)).To(Succeed())
	err := joinObjectErrors(podsType, []objectError{{name: "b", err: errOutage}, {name: "a", err: errForbidden}})
	g.Expect(err).To(MatchError(errOutage))
	g.Expect(err).To(MatchError(errForbidden))
	g.Expect(err).To(MatchError(`deleting pods "a": ` + errForbidden.Error() + `; deleting pods "b": ` + errOutage.Error()))
}
