// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"fmt"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
)

func recordsAt(now time.Time) *Records {
	return &Records{Clock: clocktesting.NewFakePassiveClock(now)}
}

func TestRecordedStates(t *testing.T) {
	tests := map[string]struct {
		set, resourceVersion string
		namespace            *corev1.Namespace
		want                 string
		isStale              bool
	}{
		"unknown":                      {namespace: namespaceWith("5", `{"a":{"revision":"1"}}`), want: "1"},
		"not recorded":                 {set: "2", namespace: namespaceWith("5", `{"a":{"revision":"1"}}`), want: "2"},
		"recorded, stale cache":        {"2", "6", namespaceWith("5", `{"a":{"revision":"1"}}`), "2", true},
		"recorded":                     {"2", "6", namespaceWith("6", `{"a":{"revision":"2"}}`), "2", false},
		"recorded, and changed since":  {"2", "6", namespaceWith("7", `{"a":{"revision":"3"}}`), "3", false},
		"recorded, longer than cached": {"2", "10", namespaceWith("9", ""), "2", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g, r := NewWithT(t), recordsAt(time.Now())
			if test.set != "" {
				r.setState(r.Begin(test.namespace), template.State{"a": {Revision: test.set}}, test.resourceVersion)
			}
			g.Expect(r.IsStale(test.namespace)).To(Equal(test.isStale))
			state, err := r.State(test.namespace)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(state["a"].Revision).To(Equal(test.want))
			other := test.namespace.DeepCopy()
			other.UID, other.Annotations = "recreated", nil
			g.Expect(r.IsStale(other)).To(BeFalse())
			state, err = r.State(other)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(state).To(BeEmpty())
		})
	}
}

// What a pass has remembered is known to the next one, unless the Namespace was deleted between them.
func TestRecordsOfPasses(t *testing.T) {
	const remaining, forgotten = true, false
	namespace := namespaceWith("5", "")
	recreated := namespace.DeepCopy()
	recreated.UID = "recreated"
	tests := map[string]struct {
		during, after func(*Records)
		next          *corev1.Namespace
		want          bool
	}{
		"the next pass":                            {next: namespace, want: remaining},
		"another Namespace was deleted":            {after: func(r *Records) { r.Forget("other") }, next: namespace, want: remaining},
		"the Namespace was recreated":              {next: recreated, want: forgotten},
		"it was deleted":                           {after: func(r *Records) { r.Forget("ns") }, next: recreated, want: forgotten},
		"it is being deleted":                      {after: func(r *Records) { r.Forget("ns") }, next: namespace, want: forgotten},
		"it was deleted and recreated in the pass": {during: func(r *Records) { r.Forget("ns") }, next: recreated, want: forgotten},
		"it was deleted in the pass":               {during: func(r *Records) { r.Forget("ns") }, next: namespace, want: remaining},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g, r := NewWithT(t), recordsAt(time.Now())
			r.SetRollout(rolledOut, plan.Rollout{Latest: "b", Current: "a"})
			first := r.Begin(namespace)
			g.Expect(first).NotTo(BeNil())
			g.Expect(r.Begin(namespace)).To(BeNil(), "one pass at a time")
			if test.during != nil {
				test.during(r)
			}
			g.Expect(r.Begin(test.next)).To(BeNil(), "one pass at a time, also after a deletion")
			first.AddCreation(template.ObjectKey{Name: "config"}, objectUID)
			r.setState(first, template.State{"a": {Revision: "1"}}, "")
			r.admit(first, []*v1alpha1.NamespaceTemplate{limited("a", 1)})
			r.wrote("ns", template.ObjectKey{Name: "config"}, plan.Observed{ResourceVersion: "10"}, time.Now())
			r.Report(first, resultWith("b", v1alpha1.ReasonApplyFailed))
			r.End(first)
			if test.after != nil {
				test.after(r)
			}
			g.Expect(r.get(test.next) != nil).To(Equal(test.want))
			state, err := r.State(test.next)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(state).To(HaveLen(map[bool]int{remaining: 1}[test.want]))

			next := r.Begin(test.next)
			g.Expect(next).NotTo(BeNil())
			g.Expect(r.admitted()).To(HaveLen(map[bool]int{remaining: 1}[test.want]))
			g.Expect(next.Created).To(HaveLen(map[bool]int{remaining: 1}[test.want]))
			g.Expect(r.isOwnWrite("ns", template.ObjectKey{Name: "config"}, "10")).To(Equal(test.want))
			g.Expect(r.Rollout(rolledOut).HasFailurePause()).To(Equal(test.want), "a deleted Namespace does not pause a rollout")
			r.End(next)
			r.Forget("ns")
			g.Expect(r.byName).To(BeEmpty())
		})
	}
}

func TestRecordedForgetsCreations(t *testing.T) {
	g, r, namespace := NewWithT(t), recordsAt(time.Now()), namespaceWith("5", "")
	record := r.Begin(namespace)
	record.AddCreation(template.ObjectKey{Name: "config"}, objectUID)
	record.AddGranted(objectUID)
	r.Recorded(record, namespaceWith("6", ""), template.State{"a": {Revision: "1"}})
	g.Expect(record.Created).To(BeEmpty())
	g.Expect(record.Granted).To(BeEmpty())
	g.Expect(r.IsStale(namespace)).To(BeTrue())
}

// Passes, deletions and readers are concurrent.
func TestRecordsAreSynchronized(t *testing.T) {
	g, r := NewWithT(t), recordsAt(time.Now())
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for step := range 200 {
				namespace := namespaceWith("5", "")
				namespace.Name = fmt.Sprint("ns-", step%3)
				if record := r.Begin(namespace); record != nil {
					record.AddCreation(template.ObjectKey{Name: fmt.Sprint(i)}, objectUID)
					r.setState(record, template.State{}, "")
					r.wrote(namespace.Name, template.ObjectKey{Name: "config"}, plan.Observed{ResourceVersion: "1"}, time.Now())
					r.End(record)
				}
				_, _ = r.State(namespace)
				r.isOwnWrite(namespace.Name, template.ObjectKey{Name: "config"}, "1")
				if step%10 == i {
					r.Forget(namespace.Name)
				}
			}
		})
	}
	all.Wait()
	g.Expect(len(r.byName)).To(BeNumerically("<=", 3))
}
