// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/nslifecycle/nslifecycle/internal/metrics"
	"github.com/nslifecycle/nslifecycle/internal/servertime"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// After a watch was interrupted, one event can replace a Namespace by a new one with the same name.
func TestInitializationTrackerForgetsRecreatedNamespaces(t *testing.T) {
	g := NewWithT(t)
	var tracker initializationTracker
	handler := tracker.handler(servertime.NewClock(clocktesting.NewFakePassiveClock(now)))
	first := wrappers.MakeNamespace("x").UID("x-uid").Initializers("a").Obj()
	second := wrappers.MakeNamespace("x").UID("another-uid").Initializers("a").Obj()
	handler.Create(t.Context(), event.CreateEvent{Object: first}, nil)
	handler.Update(t.Context(), event.UpdateEvent{ObjectOld: first, ObjectNew: second}, nil)
	g.Expect(tracker.byUID).To(And(HaveLen(1), HaveKey(second.UID)))
}

func TestInitializationTracker(t *testing.T) {
	const failure = `{"status":"Failure"}`
	created := func() *wrappers.NamespaceWrapper {
		return wrappers.MakeNamespace("x").UID("x-uid").Initializers("a", "b")
	}
	pending := created().Pending("a", "b").Obj()
	last := created().Pending("b").Obj()
	initialized := created().Pending().Obj()
	failed := created().Pending("b").Result(failure).Obj()
	failedAndDeleted := created().Pending("b").Result(failure).Terminating(now).Obj()
	deleted := created().Pending("b").Terminating(now).Obj()
	ordinary := wrappers.MakeNamespace("x").UID("x-uid").Obj()

	tests := map[string]struct {
		events []*corev1.Namespace
		// isDeleted reports whether the last event is a DELETED watch event.
		isDeleted bool
		want      []string
	}{
		"a namespace without initializers":       {events: []*corev1.Namespace{ordinary, ordinary}},
		"pending":                                {events: []*corev1.Namespace{pending, last}},
		"completed":                              {events: []*corev1.Namespace{pending, last, initialized}, want: []string{metrics.OutcomeInitialized}},
		"completed, and updated later":           {events: []*corev1.Namespace{pending, initialized, initialized, initialized}, want: []string{metrics.OutcomeInitialized}},
		"completed, and deleted later":           {events: []*corev1.Namespace{pending, initialized, deleted}, want: []string{metrics.OutcomeInitialized}},
		"completed while no manager was running": {events: []*corev1.Namespace{initialized, initialized}},
		"failed":                                 {events: []*corev1.Namespace{pending, failed}, want: []string{metrics.OutcomeFailed}},
		"failed, and therefore deleted":          {events: []*corev1.Namespace{pending, failed, failedAndDeleted}, isDeleted: true, want: []string{metrics.OutcomeFailed}},
		"failed and deleted in one event":        {events: []*corev1.Namespace{pending, failedAndDeleted}, want: []string{metrics.OutcomeFailed}},
		"failed while no manager was running":    {events: []*corev1.Namespace{failed, failedAndDeleted}},
		"deleted while pending":                  {events: []*corev1.Namespace{pending, deleted}, want: []string{metrics.OutcomeDeleted}},
		"deleted while pending, with all events": {events: []*corev1.Namespace{pending, deleted, deleted}, isDeleted: true, want: []string{metrics.OutcomeDeleted}},
		"deleted while pending, without an event for the deletionTimestamp": {events: []*corev1.Namespace{pending, pending}, isDeleted: true, want: []string{metrics.OutcomeDeleted}},
		"terminating in the first event":                                    {events: []*corev1.Namespace{deleted}, isDeleted: true},
		"deleted in the first event":                                        {events: []*corev1.Namespace{pending}, isDeleted: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var tracker initializationTracker
			var got []string
			for i, namespace := range test.events {
				namespace = namespace.DeepCopy()
				namespace.CreationTimestamp = metav1.NewTime(now)
				outcome, start := tracker.record(namespace, test.isDeleted && i == len(test.events)-1, now.Add(time.Millisecond))
				if outcome != "" {
					got = append(got, outcome)
					g.Expect(start).To(Equal(now.Add(time.Millisecond)))
				}
			}
			g.Expect(got).To(Equal(test.want))
			if len(got) > 0 {
				g.Expect(tracker.byUID).To(BeEmpty(), "an initialization is no longer tracked after it has ended")
			}
		})
	}
}
