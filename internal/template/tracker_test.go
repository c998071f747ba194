// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

func TestTracked(t *testing.T) {
	problems := func(count int, failure int) []Problem {
		var all []Problem
		for i := range count {
			reason := ReasonConflict
			if i == failure {
				reason = ReasonApplyFailed
			}
			all = append(all, Problem{Template: "a", Object: fmt.Sprint(i), Reason: reason})
		}
		return all
	}
	for name, test := range map[string]struct {
		problems, want []Problem
	}{
		"none":                      {},
		"few":                       {problems: problems(10, 3), want: problems(10, 3)},
		"many conflicts":            {problems: problems(200, -1), want: problems(10, -1)},
		"many, a failure is first":  {problems: problems(200, 0), want: problems(10, 0)},
		"many, a failure is hidden": {problems: problems(200, 150), want: append(problems(9, -1), problems(200, 150)[150])},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			tracked := Tracked([]Outcome{{Template: "a", Revision: "r", Problems: test.problems}})
			g.Expect(tracked).To(Equal([]Outcome{{Template: "a", Revision: "r", Problems: test.want}}))
		})
	}
}

// Tenants choose the size of messages and annotations.
func TestSizesAreBounded(t *testing.T) {
	g := NewWithT(t)
	large := strings.Repeat("x", 250<<10)
	g.Expect(len(toProblem("a", "b", fmt.Errorf("%s", large)).Message)).To(BeNumerically("<=", maxFailureMessage))
	const uid = "0b5e3c6e-2f4d-4c39-a8a5-0f0e0f3f1c11"
	for value, want := range map[string]string{uid: uid, uid + "x": "", large: ""} {
		stripped, err := stripObject(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Name: "x", CreationTimestamp: metav1.Now(),
			Labels:      map[string]string{v1alpha1.LabelTemplate: "a", "other": large},
			Annotations: map[string]string{v1alpha1.AnnotationNamespaceUID: value, "other": large},
			Finalizers:  []string{large},
		}})
		g.Expect(err).NotTo(HaveOccurred())
		metadata := stripped.(*metav1.PartialObjectMetadata)
		g.Expect(metadata.Annotations).To(HaveLen(2))
		g.Expect(metadata.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationNamespaceUID, want))
		g.Expect(metadata.Labels).To(Equal(map[string]string{v1alpha1.LabelTemplate: "a"}))
		g.Expect(metadata.Finalizers).To(BeEmpty())
	}
}
