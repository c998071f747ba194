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

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/observer"
)

// load returns a recording of test/servers. TestRecording checks its size.
func load(g *WithT) Recording {
	recording, err := ReadRecording("testdata/recording.jsonl")
	g.Expect(err).NotTo(HaveOccurred())
	return recording
}

// The models allow a recording of all actions that etcd stores.
func TestRecording(t *testing.T) {
	g := NewWithT(t)
	checked, err := load(g).Check()
	g.Expect(err).NotTo(HaveOccurred())
	t.Log(checked)
	g.Expect(slices.Collect(maps.Keys(checked))).To(ContainElements(
		"the user creates the namespace", "the user deletes the namespace", "the namespace is finalized and removed",
		"initializer first completes", "initializer second completes", "sets a failure result",
		"the operator writes its decision to skip first after a timeout",
		"the operator writes its decision to skip second after a timeout",
		"the operator writes its decision to skip first after deregistration",
		"the operator writes its decision to fail the initialization",
		"the operator writes its decision to delete the namespace",
		"the user deletes the configuration", "the user creates the configuration again",
		"an initializer creates an object", "the CREATE is stored", "the UPDATE is stored",
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

func hasFailed(step *observer.Step) bool {
	return step.Object.Annotations[v1alpha1.AnnotationInitializationResult] != ""
}

// isPending matches versions of Namespaces with a number of pending initializers.
func isPending(count int) func(*observer.Step) bool {
	return func(step *observer.Step) bool {
		list := step.Object.Annotations[v1alpha1.AnnotationPendingInitializers]
		return len(strings.FieldsFunc(list, func(r rune) bool { return r == ',' })) == count
	}
}

// The models allow no recording that was changed in one of these ways.
func TestChangedRecording(t *testing.T) {
	const configurations = "namespaceinitializerconfigurations"
	tests := map[string]func(g *WithT, r *Recording){
		"a user writes before the initialization is completed": func(g *WithT, r *Recording) {
			write := r.find(g, "configmaps", "completed", func(s *observer.Step) bool { return s.User == r.Ordinary })
			r.move(write, r.find(g, "namespaces", "completed", isPending(0)))
		},
		"one request removes both initializers": func(g *WithT, r *Recording) {
			r.drop(r.find(g, "namespaces", "completed", isPending(1)))
		},
		"an initializer completes twice": func(g *WithT, r *Recording) {
			again := r.find(g, "namespaces", "completed", isPending(1))
			r.Steps = slices.Insert(r.Steps, r.find(g, "namespaces", "completed", isPending(0))+1, r.Steps[again])
		},
		"the label is lost": func(g *WithT, r *Recording) {
			delete(r.Steps[r.find(g, "namespaces", "completed", isPending(1))].Object.Labels, v1alpha1.LabelInitializing)
		},
		"the UID of a namespace changes": func(g *WithT, r *Recording) {
			r.Steps[r.find(g, "namespaces", "completed", isPending(1))].Object.UID = "another"
		},
		"a failed namespace opens": func(g *WithT, r *Recording) {
			failure := r.find(g, "namespaces", "failed", hasFailed)
			delete(r.Steps[failure].Object.Labels, v1alpha1.LabelInitializing)
			delete(r.Steps[failure].Object.Annotations, v1alpha1.AnnotationPendingInitializers)
		},
		"the operator deletes a namespace without a failure result": func(_ *WithT, r *Recording) {
			for i := range r.Steps {
				delete(r.Steps[i].Object.Annotations, v1alpha1.AnnotationInitializationResult)
			}
		},
		"the operator deletes an initialized namespace": func(g *WithT, r *Recording) {
			r.Steps[r.find(g, "namespaces", "completed", isTerminating)].User = r.Operator
		},
		"the operator skips an initializer before its timeout": func(g *WithT, r *Recording) {
			created := r.find(g, "namespaces", "ignored", isPending(2))
			skipped := r.find(g, "namespaces", "ignored", isPending(1))
			r.Steps[skipped].Seen = r.Steps[created].Received.Add(time.Second - 1)
		},
		"the operator skips an initializer without a timeout": func(g *WithT, r *Recording) {
			r.Steps[r.find(g, "namespaces", "completed", isPending(1))].User = r.Operator
		},
		"the operator skips an initializer with failurePolicy Fail": func(_ *WithT, r *Recording) {
			for i := range r.Steps {
				for j := range r.Steps[i].Object.Initializers {
					r.Steps[i].Object.Initializers[j].FailurePolicy = nil
				}
			}
		},
		"the operator skips a registered initializer": func(g *WithT, r *Recording) {
			r.drop(r.find(g, configurations, "deregistered", isRemoval))
		},
		"the operator skips an initializer before the delay of deregistration": func(g *WithT, r *Recording) {
			deleted := r.find(g, configurations, "deregistered", isRemoval)
			skipped := r.find(g, "namespaces", "deregistered", isPending(0))
			r.Steps[skipped].Seen = r.Steps[deleted].Received.Add(5*time.Second - 1)
		},
		"a namespace is created without initializers": func(g *WithT, r *Recording) {
			created := &r.Steps[r.find(g, "namespaces", "completed", isPending(2))].Object
			created.Labels, created.Annotations = nil, nil
		},
		"a namespace is finalized although it is not terminating": func(_ *WithT, r *Recording) {
			r.Steps = slices.DeleteFunc(r.Steps, func(step observer.Step) bool {
				return isNamespace(&step) && isTerminating(&step) && !step.IsRemoval
			})
		},
		"a namespace is finalized before the grace period ends": func(g *WithT, r *Recording) {
			deleted := r.find(g, "namespaces", "failed", isTerminating)
			removed := r.find(g, "namespaces", "failed", isRemoval)
			r.Steps[removed].Seen = r.Steps[deleted].Received.Add(5*time.Second - 1)
		},
		"a namespace is finalized before its object is removed": func(g *WithT, r *Recording) {
			r.move(r.find(g, "namespaces", "completed", isRemoval), r.find(g, "configmaps", "completed", isRemoval))
		},
		"an object is never removed": func(g *WithT, r *Recording) {
			r.drop(r.find(g, "configmaps", "ignored", isRemoval))
		},
		"an object is removed that was never created": func(g *WithT, r *Recording) {
			r.drop(r.find(g, "configmaps", "ignored", func(*observer.Step) bool { return true }))
		},
		"the operator deletes an object of a live namespace": func(g *WithT, r *Recording) {
			r.move(r.find(g, "configmaps", "ignored", isRemoval), r.find(g, "namespaces", "ignored", isTerminating))
		},
		"an object is created after its namespace was removed": func(g *WithT, r *Recording) {
			created := r.find(g, "configmaps", "ignored", func(*observer.Step) bool { return true })
			r.drop(r.find(g, "configmaps", "ignored", isRemoval))
			r.move(created, r.find(g, "namespaces", "ignored", isRemoval))
		},
		"another user removes the namespace finalizer": func(g *WithT, r *Recording) {
			r.Steps[r.find(g, "namespaces", "failed", isRemoval)].User = r.Ordinary
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
