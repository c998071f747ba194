// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nslifecycle/nslifecycle/internal/denial"
	"github.com/nslifecycle/nslifecycle/internal/finalization/sharedlist"
	"github.com/nslifecycle/nslifecycle/internal/finalization/throttling"
)

func TestReportConfirmedEmpty(t *testing.T) {
	ofType := func(change func(*typeState)) func(*contentState) {
		return func(l *contentState) { change(l.types[0]) }
	}
	tests := map[string]struct {
		change func(*contentState)
		want   bool
	}{
		"clean, after the grace period":       {change: func(*contentState) {}, want: true},
		"clean, before the grace period ends": {change: func(l *contentState) { l.isAfterGracePeriod = false }},
		"remaining objects":                   {change: ofType(func(s *typeState) { s.Count = 1 })},
		"possibly remaining objects":          {change: ofType(func(s *typeState) { s.isUncounted = true })},
		"a type could not be listed":          {change: ofType(func(s *typeState) { s.listError = errOutage })},
		"an object could not be deleted":      {change: ofType(func(s *typeState) { s.deleteError = errOutage })},
		"unprocessed objects":                 {change: ofType(func(s *typeState) { s.isIncomplete = true })},
		"discovery failed":                    {change: func(l *contentState) { l.resources.DiscoveryError = errOutage }},
		"a group version could not be parsed": {change: func(l *contentState) { l.resources.ParseError = errOutage }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			state := &contentState{
				resources: &ResourceSet{}, isAfterGracePeriod: true, types: []*typeState{{Remaining: Remaining{Type: widgetsType}}},
			}
			test.change(state)
			report := newReport(now, now, state, "")
			g.Expect(report.ConfirmedEmpty).To(Equal(test.want))
		})
	}
}

// A list can begin with an empty page. The content of later pages is unknown until they are listed.
func TestReportUnknownAfterAnIncompleteList(t *testing.T) {
	g := NewWithT(t)
	state := &typeState{Remaining: Remaining{Type: widgetsType}}
	page := &metav1.PartialObjectMetadataList{}
	page.Continue = "more"
	state.setFirstPage(&sharedlist.Result{Page: page})
	g.Expect(state.isOpen()).To(BeTrue())
	g.Expect(state.mayHaveObjects()).To(BeTrue())
	report := newReport(now, now, &contentState{resources: &ResourceSet{}, isAfterGracePeriod: true, types: []*typeState{state}}, "")
	g.Expect(report.Unknown).To(Equal([]schema.GroupResource{widgetsType.GroupResource()}))
	g.Expect(report.IsClean()).To(BeFalse())
	g.Expect(report.ConfirmedEmpty).To(BeFalse())
}

func TestReportRequeueAfter(t *testing.T) {
	slow := ResourceType{GroupVersionResource: widgetsType.GroupVersionResource, CanList: true}
	tests := map[string]struct {
		report Report
		// gracePeriodEnd is the end of the grace period, relative to now.
		gracePeriodEnd time.Duration
		want           time.Duration
	}{
		"unprocessed objects": {
			report: Report{Incomplete: true, Remaining: []Remaining{{Type: podsType, Count: 1}}}, want: time.Millisecond,
		},
		"empty, before the grace period ends": {gracePeriodEnd: 700 * time.Millisecond, want: 700 * time.Millisecond},
		"empty, after the grace period":       {gracePeriodEnd: -time.Second, want: time.Millisecond},
		"a watched type": {
			report: Report{Remaining: []Remaining{{Type: podsType, Count: 1}}}, want: 15 * time.Second,
		},
		"a watched type, before the grace period ends": {
			report:         Report{Remaining: []Remaining{{Type: podsType, Count: 1}}},
			gracePeriodEnd: time.Second, want: 15 * time.Second,
		},
		"a pod with a short deletion grace period": {
			report: Report{Remaining: []Remaining{{Type: podsType, Count: 1, DeletionDue: now.Add(5 * time.Second)}}},
			want:   15 * time.Second,
		},
		"a pod with a deletion grace period": {
			report: Report{Remaining: []Remaining{
				{Type: podsType, Count: 1, DeletionDue: now.Add(30 * time.Second)}, {Type: widgetsType, Count: 1, DeletionDue: now},
			}},
			want: 31 * time.Second,
		},
		"a pod with a long deletion grace period": {
			report: Report{Remaining: []Remaining{{Type: podsType, Count: 1, DeletionDue: now.Add(time.Hour)}}},
			want:   time.Minute,
		},
		"a pod past its deletion grace period": {
			report: Report{Remaining: []Remaining{{Type: podsType, Count: 1, DeletionDue: now.Add(-time.Hour)}}},
			want:   15 * time.Second,
		},
		"a type that cannot be watched": {
			report: Report{Remaining: []Remaining{{Type: slow, Count: 1}, {Type: podsType, Count: 1}}},
			want:   2 * time.Second,
		},
		"a type that cannot be watched, and a pod": {
			report: Report{Remaining: []Remaining{
				{Type: podsType, Count: 1, DeletionDue: now.Add(time.Hour)}, {Type: slow, Count: 1},
			}},
			want: 2 * time.Second,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.report.gracePeriodEnd = now.Add(test.gracePeriodEnd)
			NewWithT(t).Expect(test.report.RequeueAfter(now)).To(Equal(test.want))
		})
	}
}

func TestReportErr(t *testing.T) {
	g := NewWithT(t)
	g.Expect((&Report{Resources: &ResourceSet{}}).Err()).NotTo(HaveOccurred())
	for name, report := range map[string]*Report{
		"discovery":     {Resources: &ResourceSet{DiscoveryError: errOutage}},
		"group version": {Resources: &ResourceSet{ParseError: errOutage}},
		"content":       {Resources: &ResourceSet{}, Errors: []error{errForbidden, errOutage}},
	} {
		g.Expect(report.Err()).To(MatchError(errOutage), name)
	}
}

// Errors keep their type when they are joined.
func TestJoinObjectErrors(t *testing.T) {
	g := NewWithT(t)
	g.Expect(joinObjectErrors(podsType, nil)).To(Succeed())
	err := joinObjectErrors(podsType, []objectError{{name: "b", err: errOutage}, {name: "a", err: errForbidden}})
	g.Expect(err).To(MatchError(errOutage))
	g.Expect(err).To(MatchError(errForbidden))
	g.Expect(err).To(MatchError(`failed to delete pods "a": ` + errForbidden.Error() + `; failed to delete pods "b": ` + errOutage.Error()))
}

func TestRetryAfterOfJoinedObjectErrors(t *testing.T) {
	err := joinObjectErrors(podsType, []objectError{
		{name: "a", err: errOutage}, {name: "b", err: apierrors.NewTooManyRequests("busy", 4)},
	})
	NewWithT(t).Expect(throttling.RetryAfter(err)).To(Equal(4 * time.Second))
}

func TestAddRemedies(t *testing.T) {
	g := NewWithT(t)
	denied := func(resource string) *typeState {
		one := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: resource}
		err := apierrors.NewForbidden(one.GroupResource(), "", fmt.Errorf(
			`User "operator" cannot list resource %q in API group "example.com" in the namespace "shop"`, resource))
		return &typeState{Remaining: Remaining{Type: ResourceType{GroupVersionResource: one}}, listError: err}
	}
	failed := denied("failed")
	failed.listError = errors.New("connection refused")
	report := newReport(time.Time{}, time.Time{}, &contentState{resources: &ResourceSet{}, types: []*typeState{
		failed, denied("a"), denied("b"), denied("c"), denied("d"),
	}}, "")
	report.addRemedies(func(one schema.GroupResource) string {
		if one.Resource == "b" {
			return ""
		}
		return "grant " + one.Resource
	})
	var remedies []string
	for _, err := range report.Errors {
		_, remedy, _ := strings.Cut(err.Error(), "; ")
		remedies = append(remedies, remedy)
	}
	g.Expect(remedies).To(Equal([]string{"", "grant a", "", "grant c", ""}))
	g.Expect(denial.IsMissingPermission(report.Errors[1])).To(BeTrue())
}
