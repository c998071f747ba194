// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
)

func TestProgressLines(t *testing.T) {
	g := NewWithT(t)
	namespace := makeInitializing(map[string]string{
		v1alpha1.AnnotationInitializers:        "a.b.c,dd.e.f,g.h.i",
		v1alpha1.AnnotationPendingInitializers: "dd.e.f,g.h.i",
	})
	namespace.Status.Conditions = []corev1.NamespaceCondition{
		{Type: "dd.e.f/Initialized", Reason: "Copying", Message: "3 of 9 files"},
		{Type: "g.h.i/Initialized", Reason: "Pending", Message: "the initializer is not the first in the pending list"},
	}
	state := initialization.ParseState(namespace)
	lines := progressLines(computeProgress(namespace, &state))
	g.Expect(lines).To(Equal([]string{
		"  a.b.c   done", "  dd.e.f  running  Copying: 3 of 9 files", "  g.h.i   waiting",
	}))

	namespace.Annotations[v1alpha1.AnnotationInitializationResult] = `{"status":"Failure"}`
	state = initialization.ParseState(namespace)
	g.Expect(computeProgress(namespace, &state)[1].phase).To(Equal(phaseFailed))

	namespace.Annotations = map[string]string{
		v1alpha1.AnnotationInitializers: "a.b.c,dd.e.f", v1alpha1.AnnotationPendingInitializers: "dd.e.f",
	}
	namespace.Status.Conditions = initialization.SkippedConditions([]string{"a.b.c", "dd.e.f"}, v1alpha1.ReasonTimedOut,
		"skipped: too late", namespace.CreationTimestamp)
	state = initialization.ParseState(namespace)
	g.Expect(progressLines(computeProgress(namespace, &state))[0]).To(Equal("  a.b.c   skipped  TimedOut: too late"))
	g.Expect(computeProgress(namespace, &state)[1].phase).To(Equal(phaseRunning))
}
