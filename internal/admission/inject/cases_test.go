// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/admission/cases"
)

func TestInject(t *testing.T) {
	set := cases.Set()
	for name, test := range cases.Creations() {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			namespace := defaulted(test.Request())
			Inject(namespace, set, test.User)
			if namespace.Name != "" {
				g.Expect(namespace.Labels).To(HaveKeyWithValue(corev1.LabelMetadataName, namespace.Name))
			}
			delete(namespace.Labels, corev1.LabelMetadataName)
			expectObject(g, namespace, test.Want)
		})
	}
}

// TestInjectAfterPolicy verifies that Inject does not change what the policy has injected.
func TestInjectAfterPolicy(t *testing.T) {
	set := cases.Set()
	for name, test := range cases.Creations() {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			once := defaulted(test.Request())
			Inject(once, set, test.User)
			twice := once.DeepCopy()
			Inject(twice, set, test.User)
			g.Expect(twice).To(Equal(once))
			g.Expect(computePatch(once, twice, parents{spec: true, status: true})).To(BeEmpty())
		})
	}
}

// defaulted adds the label that the API server adds before admission.
func defaulted(namespace *corev1.Namespace) *corev1.Namespace {
	if namespace.Name != "" {
		put(&namespace.Labels, corev1.LabelMetadataName, namespace.Name)
	}
	return namespace
}

func expectObject(g Gomega, namespace *corev1.Namespace, want cases.Object) {
	g.Expect(namespace.Labels).To(Or(Equal(want.Labels), And(BeEmpty(), HaveLen(len(want.Labels)))))
	g.Expect(namespace.Annotations).To(Or(Equal(want.Annotations), And(BeEmpty(), HaveLen(len(want.Annotations)))))
	g.Expect(namespace.Spec.Finalizers).To(Or(Equal(want.Finalizers), And(BeEmpty(), HaveLen(len(want.Finalizers)))))
}

func TestComplete(t *testing.T) {
	starts := cases.Starts()
	for name, test := range cases.Updates() {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			before := starts[test.Start].DeepCopy()
			want := test.Expected(before)
			after := before.DeepCopy()
			test.Change(after)
			Complete(before, after, test.User == cases.Initializer)
			expectObject(g, after, cases.Object{Labels: want.Labels, Annotations: want.Annotations})
			if test.User == cases.Initializer {
				completeAfterPolicy(before, after)
				expectObject(g, after, cases.Object{Labels: want.Labels, Annotations: want.Annotations})
			}
		})
	}
}

// TestCompleteAfterPolicy verifies the rules where the policy has not run.
func TestCompleteAfterPolicy(t *testing.T) {
	starts := cases.Starts()
	for name, test := range cases.Updates() {
		_, isCompletion := strings.CutPrefix(name, "completes")
		if test.User != cases.Initializer || !isCompletion {
			continue
		}
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			before := starts[test.Start].DeepCopy()
			want, after := test.Expected(before), before.DeepCopy()
			test.Change(after)
			completeAfterPolicy(before, after)
			expectObject(g, after, cases.Object{Labels: want.Labels, Annotations: want.Annotations})
		})
	}
}

func TestRestoreConditions(t *testing.T) {
	for name, test := range cases.ConditionUpdates() {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			before := cases.Starts()[cases.StartCompleted]
			before.Status.Conditions = cases.Conditions()
			after := before.DeepCopy()
			after.Status.Conditions = test.Change(before.Status.Conditions)
			sent := after.DeepCopy()
			restoreConditions(before, after)
			if test.User == cases.Initializer { // The API server does not call the webhook.
				return
			}
			g.Expect(after.Status.Conditions).To(HaveExactElements(test.Expected(before.Status.Conditions)))
			again := after.DeepCopy()
			restoreConditions(after, again)
			g.Expect(again).To(Equal(after))

			before.Labels = map[string]string{v1alpha1.LabelInitializing: "true"}
			initializing := sent.DeepCopy()
			restoreConditions(before, initializing)
			if slices.ContainsFunc(sent.Status.Conditions, isOfInitialization) {
				g.Expect(initializing).To(Equal(sent), "the guard policy decides")
			} else {
				g.Expect(initializing.Status).To(Equal(after.Status))
			}

			now := metav1.Now()
			before.DeletionTimestamp = &now
			terminating := sent.DeepCopy()
			restoreConditions(before, terminating)
			g.Expect(terminating.Status).To(Equal(after.Status))
		})
	}
}
