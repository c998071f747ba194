// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/nslifecycle/nslifecycle/test/framework/observer"
)

// load returns a recording of test/servers. TestRecording checks its size.
func load(g *WithT) Recording {
	recording, err := ReadRecording("testdata/recording.jsonl")
	g.Expect(err).NotTo(HaveOccurred())
	return recording
}

// The model allows a recording of all actions that etcd stores.
func TestRecording(t *testing.T) {
	g := NewWithT(t)
	checked, err := load(g).Check()
	g.Expect(err).NotTo(HaveOccurred())
	t.Log(checked)
	g.Expect(slices.Collect(maps.Keys(checked))).To(ContainElements(
		"the user creates the namespace", "the user deletes the namespace",
		"the object of type 1 is stored", "the operator deletes the object", "the owner removes the finalizer of the object",
		"the operator removes the namespace finalizer", "the second controller removes the namespace finalizer",
		"another controller adds its finalizer to the namespace",
		"another controller removes its finalizer from the namespace"))
}

// find returns the index of the first step with a resource, in a namespace with a prefix, that matches.
func (r Recording) find(g *WithT, resource, prefix string, matches func(*observer.Step) bool) int {
	index := slices.IndexFunc(r.Steps, func(step observer.Step) bool {
		isNamed := strings.HasPrefix(step.Object.Namespace, prefix+"-") ||
			step.Object.Namespace == "" && strings.HasPrefix(step.Object.Name, prefix+"-")
		return step.Resource == resource && isNamed && matches(&step)
	})
	g.Expect(index).To(BeNumerically(">=", 0))
	return index
}

// move moves a step in front of another one.
func (r *Recording) move(from, to int) {
	step := r.Steps[from]
	r.Steps = slices.Insert(slices.Delete(r.Steps, from, from+1), to, step)
}

func (r *Recording) drop(index int) { r.Steps = slices.Delete(r.Steps, index, index+1) }

func isRemoval(step *observer.Step) bool { return step.IsRemoval }

func isTerminating(step *observer.Step) bool { return step.Object.DeletionTimestamp != nil }

// The model allows no recording that was changed in one of these ways.
func TestChangedRecording(t *testing.T) {
	tests := map[string]func(g *WithT, r *Recording){
		"the UID of a namespace changes": func(g *WithT, r *Recording) {
			r.Steps[r.find(g, "namespaces", "single", isTerminating)].Object.UID = "another"
		},
		"a namespace is finalized although it is not terminating": func(_ *WithT, r *Recording) {
			r.Steps = slices.DeleteFunc(r.Steps, func(step observer.Step) bool {
				return isNamespace(&step) && isTerminating(&step) && !step.IsRemoval
			})
		},
		"a namespace is finalized before the grace period ends": func(g *WithT, r *Recording) {
			deleted := r.find(g, "namespaces", "single", isTerminating)
			removed := r.find(g, "namespaces", "single", isRemoval)
			r.Steps[removed].Seen = r.Steps[deleted].Received.Add(5*time.Second - 1)
		},
		"a namespace is finalized before its object is removed": func(g *WithT, r *Recording) {
			r.move(r.find(g, "namespaces", "recreated", isRemoval), r.find(g, "configmaps", "recreated", isRemoval))
		},
		"an object is never removed": func(g *WithT, r *Recording) {
			r.drop(r.find(g, "configmaps", "single", isRemoval))
		},
		"an object is removed that was never created": func(g *WithT, r *Recording) {
			r.drop(r.find(g, "configmaps", "single", func(*observer.Step) bool { return true }))
		},
		"the operator deletes an object of a live namespace": func(g *WithT, r *Recording) {
			r.move(r.find(g, "configmaps", "single", isRemoval), r.find(g, "namespaces", "single", isTerminating))
		},
		"an object is created after its namespace was removed": func(g *WithT, r *Recording) {
			created := r.find(g, "configmaps", "single", func(*observer.Step) bool { return true })
			r.drop(r.find(g, "configmaps", "single", isRemoval))
			r.move(created, r.find(g, "namespaces", "single", isRemoval))
		},
		"another user removes the namespace finalizer": func(g *WithT, r *Recording) {
			r.Steps[r.find(g, "namespaces", "single", isRemoval)].User = r.Ordinary
		},
		"the operator removes the finalizer of another controller": func(g *WithT, r *Recording) {
			r.Steps[r.find(g, "namespaces", "finalizers", isRemoval)].User = r.Operator
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			recording := load(g)
			change(g, &recording)
			_, err := recording.Check()
			g.Expect(err).To(MatchError(ContainSubstring("the model does not allow")))
			t.Log(err)
		})
	}
}
