// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

func TestWhenBegun(t *testing.T) {
	tests := map[string]struct{ seen, want time.Duration }{
		"at once":                            {seen: 0, want: 0},
		"within the second":                  {seen: 400 * time.Millisecond, want: 400 * time.Millisecond},
		"at the end of the second":           {seen: time.Second, want: time.Second},
		"after the second":                   {seen: time.Hour, want: time.Second},
		"by a clock that is behind":          {seen: -time.Minute, want: 0},
		"by a clock that is a little behind": {seen: -time.Millisecond, want: 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(whenBegun(metav1.NewTime(now), now.Add(test.seen))).To(Equal(now.Add(test.want)))
		})
	}
}

func TestSecondsSince(t *testing.T) {
	g := NewWithT(t)
	g.Expect(secondsSince(now, now.Add(1500*time.Millisecond))).To(Equal(1.5))
	g.Expect(secondsSince(now, now.Add(-time.Second))).To(BeZero())
}

func TestInitializationTracker(t *testing.T) {
	const failure = `{"status":"Failure"}`
	created := func() *wrappers.NamespaceWrapper {
		return wrappers.MakeNamespace("x").UID("x-uid").Initializers("a", "b")
	}
	pending := created().Pending("a", "b").Obj()
	last := created().Pending("b").Obj()
	open := created().Pending().Obj()
	failed := created().Pending("b").Result(failure).Obj()
	failedAndDeleted := created().Pending("b").Result(failure).Terminating(now).Obj()
	deleted := created().Pending("b").Terminating(now).Obj()
	ordinary := wrappers.MakeNamespace("x").UID("x-uid").Obj()

	tests := map[string]struct {
		events []*corev1.Namespace
		// isDeleted means that the last event is a deletion.
		isDeleted bool
		want      []string
	}{
		"a namespace without initializers":            {events: []*corev1.Namespace{ordinary, ordinary}},
		"pending":                                     {events: []*corev1.Namespace{pending, last}},
		"completed":                                   {events: []*corev1.Namespace{pending, last, open}, want: []string{outcomeCompleted}},
		"completed, and updated later":                {events: []*corev1.Namespace{pending, open, open, open}, want: []string{outcomeCompleted}},
		"completed, and deleted later":                {events: []*corev1.Namespace{pending, open, deleted}, want: []string{outcomeCompleted}},
		"completed while no manager was running":      {events: []*corev1.Namespace{open, open}},
		"failed":                                      {events: []*corev1.Namespace{pending, failed}, want: []string{outcomeFailed}},
		"failed, and deleted because of it":           {events: []*corev1.Namespace{pending, failed, failedAndDeleted}, isDeleted: true, want: []string{outcomeFailed}},
		"failed and deleted in one event":             {events: []*corev1.Namespace{pending, failedAndDeleted}, want: []string{outcomeFailed}},
		"failed while no manager was running":         {events: []*corev1.Namespace{failed, failedAndDeleted}},
		"deleted while pending":                       {events: []*corev1.Namespace{pending, deleted}, want: []string{outcomeDeleted}},
		"deleted while pending, until the last event": {events: []*corev1.Namespace{pending, deleted, deleted}, isDeleted: true, want: []string{outcomeDeleted}},
		"deleted while pending, without an event of the deletion timestamp": {events: []*corev1.Namespace{pending, pending}, isDeleted: true, want: []string{outcomeDeleted}},
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
				g.Expect(tracker.byUID).To(BeEmpty(), "finished initializations are no longer tracked")
			}
		})
	}
}
