// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
)

func writesAt(now time.Time) *Writes {
	return &Writes{Clock: clocktesting.NewFakePassiveClock(now)}
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
			g, w := NewWithT(t), writesAt(start)
			if test.set != "" {
				w.SetState(test.namespace, template.Record{"a": {Revision: test.set}}, test.resourceVersion)
			}
			g.Expect(w.IsStale(test.namespace)).To(Equal(test.isStale))
			state, err := w.State(test.namespace)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(state["a"].Revision).To(Equal(test.want))
			other := test.namespace.DeepCopy()
			other.UID, other.Annotations = "recreated", nil
			g.Expect(w.IsStale(other)).To(BeFalse())
			state, err = w.State(other)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(state).To(BeEmpty())
		})
	}
}

// Passes, deletions and readers are concurrent.
func TestWritesAreSynchronized(t *testing.T) {
	g, w := NewWithT(t), writesAt(start)
	var all sync.WaitGroup
	key := template.ObjectKey{Name: "config"}
	for i := range 8 {
		all.Go(func() {
			for step := range 200 {
				namespace := namespaceWith("5", "")
				namespace.Name = fmt.Sprint("ns-", step%3)
				w.SetState(namespace, template.Record{}, "")
				w.Wrote(namespace, key, &plan.Observed{ResourceVersion: "1"})
				_, _ = w.State(namespace)
				w.isOwn(namespace.Name, key, "1")
				if step%10 == i {
					w.Forget(namespace.Name)
				}
			}
		})
	}
	all.Wait()
	g.Expect(len(w.byName)).To(BeNumerically("<=", 3))
}

// The writes to a deleted Namespace do not count for a new one with its name.
func TestWritesToRecreatedNamespaces(t *testing.T) {
	g, w, namespace, key := NewWithT(t), writesAt(start), namespaceWith("5", ""), template.ObjectKey{Name: "config"}
	w.Wrote(namespace, key, &plan.Observed{UID: "1", ResourceVersion: "10"})
	recreated := namespace.DeepCopy()
	recreated.UID = "recreated"
	g.Expect(w.newest(namespace, key, nil)).NotTo(BeNil())
	g.Expect(w.newest(recreated, key, nil)).To(BeNil())
	g.Expect(w.HasUnseen(namespace)).To(BeTrue())
	g.Expect(w.HasUnseen(recreated)).To(BeFalse())
	w.Forget("ns")
	g.Expect(w.byName).To(BeEmpty())
}
