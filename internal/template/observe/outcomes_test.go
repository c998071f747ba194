// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
)

// reportIn reports the outcomes of a pass over a Namespace. It returns the templates whose status has changed.
func reportIn(r *Rollouts, name string, outcomes []plan.TemplateOutcome) []string {
	_, changed := r.Report(namespaceWithUID(types.UID(name)), plan.Outcome{Templates: outcomes})
	return changed
}

func TestHasProcessed(t *testing.T) {
	g := NewWithT(t)
	r := rolloutsAt(start)
	tmpl := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1", Generation: 2}}
	process := func(uid types.UID, generation int64) bool {
		g.Expect(reportIn(r, "ns", []plan.TemplateOutcome{{Template: "a", UID: uid, Generation: generation}})).To(Equal([]string{"a"}))
		return r.HasProcessed(tmpl, "ns")
	}
	g.Expect(r.HasProcessed(tmpl, "ns")).To(BeFalse())
	g.Expect(process("1", 1)).To(BeFalse(), "an earlier generation")
	g.Expect(process("0", 5)).To(BeFalse(), "another template with the same name")
	g.Expect(process("1", 2)).To(BeTrue())
	g.Expect(process("1", 3)).To(BeTrue(), "a later generation")
	g.Expect(r.HasProcessed(tmpl, "other")).To(BeFalse())
}

func TestIsComplete(t *testing.T) {
	g := NewWithT(t)
	r := rolloutsAt(start)
	namespaces := []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "one"}}, {ObjectMeta: metav1.ObjectMeta{Name: "two"}}}
	deleted := corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "deleted", DeletionTimestamp: ptr.To(metav1.Now())}}
	namespaces = append(namespaces, deleted)
	g.Expect(r.IsComplete(namespaces)).To(BeFalse())
	reportIn(r, "one", nil)
	g.Expect(r.IsComplete(namespaces)).To(BeFalse())
	r.Processed(namespaceWithUID("two"))
	g.Expect(r.IsComplete(namespaces)).To(BeTrue())
	namespaces = append(namespaces, corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "new"}})
	g.Expect(r.IsComplete(namespaces)).To(BeTrue(), "the counts are complete since the first pass")
}

func TestReportReturnsNewProblems(t *testing.T) {
	g, r := NewWithT(t), rolloutsAt(start)
	first, second := template.Problem{Template: "a", Reason: v1alpha1.ReasonForbidden}, template.Problem{Template: "b", Reason: v1alpha1.ReasonConflict}
	report := func(problems ...template.Problem) []template.Problem {
		found, _ := r.Report(namespaceWithUID("ns"), plan.Outcome{Templates: []plan.TemplateOutcome{{Template: "a"}, {Template: "b", Problems: problems}}})
		return found
	}
	g.Expect(report(first)).To(HaveExactElements(first))
	g.Expect(report(first, second)).To(HaveExactElements(second))
	g.Expect(report(first, second)).To(BeEmpty())
	g.Expect(report()).To(BeEmpty())
	g.Expect(report(first, second)).To(HaveExactElements(first, second))
}

// Tenants choose the size of messages and annotations.
func TestSizesAreBounded(t *testing.T) {
	g := NewWithT(t)
	large := strings.Repeat("x", 250<<10)
	g.Expect(len(template.ToProblem("a", "b", fmt.Errorf("%s", large)).Message)).To(BeNumerically("<=", template.MaxFailureMessage))
	const uid = "0b5e3c6e-2f4d-4c39-a8a5-0f0e0f3f1c11"
	for value, want := range map[string]string{uid: uid, uid + "x": "", large: ""} {
		kept := compacted(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Name:        "x",
			Labels:      map[string]string{v1alpha1.LabelManagedByTemplate: "a", "other": large},
			Annotations: map[string]string{v1alpha1.AnnotationNamespaceUID: value, "other": large},
			Finalizers:  []string{large},
		}})
		g.Expect(kept.observed()).To(HaveField("NamespaceUID", BeEquivalentTo(want)))
		g.Expect(len(kept.text)).To(BeNumerically("<", 100))
	}
}
