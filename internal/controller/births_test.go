// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/internal/metrics"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

func TestBirthsObserve(t *testing.T) {
	const failure = `{"status":"Failure"}`
	born := func() *wrappers.NamespaceWrapper {
		return wrappers.MakeNamespace("x").UID("x-uid").Initializers("a", "b")
	}
	pending := born().Pending("a", "b").Obj()
	last := born().Pending("b").Obj()
	open := born().Pending().Obj()
	failed := born().Pending("b").Result(failure).Obj()
	failedAndDeleted := born().Pending("b").Result(failure).Terminating(now).Obj()
	deleted := born().Pending("b").Terminating(now).Obj()
	ordinary := wrappers.MakeNamespace("x").UID("x-uid").Obj()

	tests := map[string]struct {
		events []*corev1.Namespace
		// isGone says that the last event is that it has gone.
		isGone bool
		want   []string
	}{
		"a namespace with nothing to wait for":         {events: []*corev1.Namespace{ordinary, ordinary}},
		"one that waits":                               {events: []*corev1.Namespace{pending, last}},
		"one that gets open":                           {events: []*corev1.Namespace{pending, last, open}, want: []string{metrics.OutcomeCompleted}},
		"one that is open for long":                    {events: []*corev1.Namespace{pending, open, open, open}, want: []string{metrics.OutcomeCompleted}},
		"one that is deleted when it is open":          {events: []*corev1.Namespace{pending, open, deleted}, want: []string{metrics.OutcomeCompleted}},
		"one that got open when nobody watched":        {events: []*corev1.Namespace{open, open}},
		"one that fails":                               {events: []*corev1.Namespace{pending, failed}, want: []string{metrics.OutcomeFailed}},
		"one that fails, and is deleted for that":      {events: []*corev1.Namespace{pending, failed, failedAndDeleted}, isGone: true, want: []string{metrics.OutcomeFailed}},
		"one of which both came in one event":          {events: []*corev1.Namespace{pending, failedAndDeleted}, want: []string{metrics.OutcomeFailed}},
		"one that failed when nobody watched":          {events: []*corev1.Namespace{failed, failedAndDeleted}},
		"one that is deleted before it is open":        {events: []*corev1.Namespace{pending, deleted}, want: []string{metrics.OutcomeDeleted}},
		"one that is deleted, and gone":                {events: []*corev1.Namespace{pending, deleted, deleted}, isGone: true, want: []string{metrics.OutcomeDeleted}},
		"one whose deletion was missed":                {events: []*corev1.Namespace{pending, pending}, isGone: true, want: []string{metrics.OutcomeDeleted}},
		"one that was being deleted when it was found": {events: []*corev1.Namespace{deleted}, isGone: true},
		"one that nobody knew, and that has gone":      {events: []*corev1.Namespace{pending}, isGone: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var b births
			var got []string
			for i, namespace := range test.events {
				namespace = namespace.DeepCopy()
				namespace.CreationTimestamp = metav1.NewTime(now)
				outcome, begun := b.observe(namespace, test.isGone && i == len(test.events)-1, now.Add(time.Millisecond))
				if outcome != "" {
					got = append(got, outcome)
					g.Expect(begun).To(Equal(now.Add(time.Millisecond)))
				}
			}
			g.Expect(got).To(Equal(test.want))
			if len(got) > 0 {
				g.Expect(b.byUID).To(BeEmpty(), "nothing is remembered of what is over")
			}
		})
	}
}
