// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
)

// beginIn begins a pass over a Namespace.
func beginIn(r *Records, name string) *Record {
	namespace := namespaceWith("1", "")
	namespace.Name = name
	return r.Begin(namespace)
}

// reportIn reports the outcomes of a pass over a Namespace. It returns the templates whose status has changed.
func reportIn(r *Records, name string, outcomes []plan.Outcome) []string {
	record := beginIn(r, name)
	defer r.End(record)
	_, changed := r.Report(record, plan.Result{Templates: outcomes})
	return changed
}

func TestSummary(t *testing.T) {
	outcome := func(revision string, problems ...template.Problem) plan.Outcome {
		return plan.Outcome{Template: "a", UID: "a", Generation: 2, Revision: revision, Problems: problems}
	}
	initializing := func(outcome plan.Outcome) []plan.Outcome {
		outcome.IsInitializing = true
		return []plan.Outcome{outcome}
	}
	failed := template.Problem{Template: "a", Object: "config", Reason: v1alpha1.ReasonForbidden, Message: "x"}
	claimed := template.Problem{Template: "a", Reason: v1alpha1.ReasonClaimedByTemplate, Message: "y"}
	g := NewWithT(t)
	r := recordsAt(time.Now())
	g.Expect(reportIn(r, "updated", []plan.Outcome{outcome("1")})).To(Equal([]string{"a"}))
	g.Expect(reportIn(r, "updated", []plan.Outcome{outcome("1")})).To(BeEmpty(), "nothing has changed")
	canary := outcome("1")
	canary.IsCanary = true
	g.Expect(reportIn(r, "updated", []plan.Outcome{canary})).To(Equal([]string{"a"}), "the rollout may continue")
	reportIn(r, "outdated", []plan.Outcome{outcome("0")})
	reportIn(r, "initializing", initializing(outcome("0")))
	reportIn(r, "initializing-conflicted", initializing(outcome("0", claimed)))
	reportIn(r, "initializing-failed", initializing(outcome("0", failed)))
	waiting := outcome("1")
	waiting.Waiting = []template.Problem{
		{Template: "a", Object: "binding", Reason: v1alpha1.ReasonPermissionsNotGranted},
		{Template: "a", Object: "binding", Reason: v1alpha1.ReasonRoleNotFound, Message: "z"},
	}
	reportIn(r, "initializing-without-role", initializing(waiting))
	reportIn(r, "claimed", []plan.Outcome{outcome("1", claimed)})
	for _, reason := range []string{
		v1alpha1.ReasonObjectTerminating, v1alpha1.ReasonFieldImmutable, v1alpha1.ReasonNotRecorded, v1alpha1.ReasonInputTooLarge,
	} {
		reportIn(r, "local-"+reason, []plan.Outcome{outcome("1", template.Problem{Template: "a", Reason: reason})})
	}
	reportIn(r, "both", []plan.Outcome{outcome("1", claimed, failed), {Template: "b"}})
	summary := r.Summary("a", "1")
	g.Expect(summary.Counts).To(Equal(v1alpha1.TemplateNamespaceCounts{
		Desired: 10, Updated: 1, Outdated: 1, Failed: 6, Conflicted: 2,
	}))
	g.Expect(summary.Failing).To(Equal(int32(2)), "only the failures that are not local")
	g.Expect(summary.Failures).To(HaveLen(10))
	g.Expect(summary.Failures).To(ContainElement(HaveField("Reason", v1alpha1.ReasonRoleNotFound)))
	g.Expect(summary.Failures).NotTo(ContainElement(HaveField("Reason", v1alpha1.ReasonPermissionsNotGranted)))
	g.Expect(summary.Failures[:3]).To(Equal([]v1alpha1.TemplateFailure{
		{Namespace: "both", Reason: v1alpha1.ReasonClaimedByTemplate, Message: "y"},
		{Namespace: "both", Object: "config", Reason: v1alpha1.ReasonForbidden, Message: "x"},
		{Namespace: "claimed", Reason: v1alpha1.ReasonClaimedByTemplate, Message: "y"},
	}))
	g.Expect(reportIn(r, "both", []plan.Outcome{outcome("1")})).To(Equal([]string{"a", "b"}))
	for i := range 20 {
		reportIn(r, fmt.Sprintf("failed-%02d", i), []plan.Outcome{outcome("1", failed)})
	}
	g.Expect(r.Summary("a", "1").Failures).To(HaveLen(plan.MaxFailures))
	for namespace := range r.byName {
		g.Expect(r.Forget(namespace)).To(ContainElement("a"))
	}
	g.Expect(r.Summary("a", "1")).To(Equal(plan.Summary{}))
}

func TestHasProcessed(t *testing.T) {
	g := NewWithT(t)
	r := recordsAt(time.Now())
	tmpl := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1", Generation: 2}}
	process := func(uid types.UID, generation int64) bool {
		g.Expect(reportIn(r, "ns", []plan.Outcome{{Template: "a", UID: uid, Generation: generation}})).To(Equal([]string{"a"}))
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
	r := recordsAt(time.Now())
	namespaces := []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "one"}}, {ObjectMeta: metav1.ObjectMeta{Name: "two"}}}
	deleted := corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "deleted", DeletionTimestamp: ptr.To(metav1.Now())}}
	namespaces = append(namespaces, deleted)
	g.Expect(r.IsComplete(namespaces)).To(BeFalse())
	reportIn(r, "one", nil)
	g.Expect(r.IsComplete(namespaces)).To(BeFalse())
	r.Processed(beginIn(r, "two"))
	g.Expect(r.IsComplete(namespaces)).To(BeTrue())
	namespaces = append(namespaces, corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "new"}})
	g.Expect(r.IsComplete(namespaces)).To(BeTrue(), "the counts are complete since the first pass")
}

func TestReportReturnsNewProblems(t *testing.T) {
	g, r := NewWithT(t), recordsAt(time.Now())
	record := beginIn(r, "ns")
	first, second := template.Problem{Template: "a", Reason: v1alpha1.ReasonForbidden}, template.Problem{Template: "b", Reason: v1alpha1.ReasonConflict}
	report := func(problems ...template.Problem) []template.Problem {
		found, _ := r.Report(record, plan.Result{Templates: []plan.Outcome{{Template: "a"}, {Template: "b", Problems: problems}}})
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
