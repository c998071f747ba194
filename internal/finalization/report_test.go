// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What else makes a survey a proof is the business of TestLedger….
func TestIsProof(t *testing.T) {
	state := func(change func(*typeState)) func(*Ledger) {
		return func(l *Ledger) { change(l.types[0]) }
	}
	tests := map[string]struct {
		change func(*Ledger)
		want   bool
	}{
		"clean, and surveyed when the namespace had settled": {change: func(*Ledger) {}, want: true},
		"surveyed before":                     {change: func(l *Ledger) { l.isProof = false }},
		"something remains":                   {change: state(func(s *typeState) { s.Count = 1 })},
		"something may remain":                {change: state(func(s *typeState) { s.isUncounted = true })},
		"something could not be listed":       {change: state(func(s *typeState) { s.listError = errOutage })},
		"something could not be deleted":      {change: state(func(s *typeState) { s.deleteError = errOutage })},
		"there is more":                       {change: state(func(s *typeState) { s.hasMore = true })},
		"discovery failed":                    {change: func(l *Ledger) { l.inventory.DiscoveryError = errOutage }},
		"a group version could not be parsed": {change: func(l *Ledger) { l.inventory.ParseError = errOutage }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			ledger := &Ledger{
				inventory: &Inventory{}, isProof: true, types: []*typeState{{Remaining: Remaining{Type: widgetsType}}},
			}
			test.change(ledger)
			report := newReport(now, ledger, "")
			g.Expect(report.IsProof).To(Equal(test.want))
		})
	}
}

// A list may begin with an empty page. What follows is not known before it is listed.
func TestReportDoesNotKnowWhatWasNotListedToTheEnd(t *testing.T) {
	g := NewWithT(t)
	state := &typeState{Remaining: Remaining{Type: widgetsType}}
	page := &metav1.PartialObjectMetadataList{}
	page.Continue = "more"
	state.take(&finding{page: page})
	g.Expect(state.isOpen()).To(BeTrue())
	g.Expect(state.mayHaveObjects()).To(BeTrue())
	report := newReport(now, &Ledger{inventory: &Inventory{}, isProof: true, types: []*typeState{state}}, "")
	g.Expect(report.Unknown).To(Equal([]schema.GroupResource{widgetsType.GroupResource()}))
	g.Expect(report.IsClean()).To(BeFalse())
	g.Expect(report.IsProof).To(BeFalse())
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
