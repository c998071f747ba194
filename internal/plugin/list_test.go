// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/plugin/templates"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

var (
	testStart = metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	testEnd   = metav1.NewTime(testStart.Add(time.Hour))
)

func makeTerminating(conditions ...corev1.NamespaceCondition) *corev1.Namespace {
	return &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "n", CreationTimestamp: testStart, DeletionTimestamp: &testEnd},
		Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
		Status:     corev1.NamespaceStatus{Conditions: conditions},
	}
}

func makeInitializing(annotations map[string]string) *corev1.Namespace {
	return &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "n", CreationTimestamp: testStart, Annotations: annotations},
	}
}

func trueCondition(conditionType corev1.NamespaceConditionType, message string) corev1.NamespaceCondition {
	return corev1.NamespaceCondition{Type: conditionType, Status: corev1.ConditionTrue, Message: message, Reason: "Why"}
}

func TestComputeSummary(t *testing.T) {
	const all, pending = v1alpha1.AnnotationInitializers, v1alpha1.AnnotationPendingInitializers
	withFinalizers := makeTerminating()
	withFinalizers.Spec.Finalizers = append(withFinalizers.Spec.Finalizers, "corp.example.com/agent")
	withFinalizers.Finalizers = []string{"corp.example.com/own"}
	completed := makeInitializing(map[string]string{all: "a.b.c"})
	completed.Status.Conditions = []corev1.NamespaceCondition{{
		Type: v1alpha1.ConditionInitializing, Status: corev1.ConditionFalse,
		Reason: v1alpha1.ReasonInitialized, LastTransitionTime: testEnd,
	}}
	notTrue := trueCondition(corev1.NamespaceDeletionContentFailure, "no failure")
	notTrue.Status = corev1.ConditionFalse
	blocked := makeInitializing(map[string]string{pending: "a.b.c"})
	blocked.Status.Conditions = []corev1.NamespaceCondition{trueCondition(v1alpha1.ConditionInitializationBlocked, "initializer does not run")}

	tests := map[string]struct {
		namespace *corev1.Namespace
		state     diagnosis.NamespaceState
		since     metav1.Time
		waitsFor  []string
		cause     string
		isBlocked bool
	}{
		"no initializers": {namespace: makeInitializing(nil), state: diagnosis.StateInitialized, since: testStart},
		"initialized":     {namespace: completed, state: diagnosis.StateInitialized, since: testEnd},
		"initializing": {
			namespace: makeInitializing(map[string]string{all: "a.b.c,d.e.f,g.h.i", pending: "d.e.f,g.h.i"}),
			state:     diagnosis.StateInitializing, since: testStart, waitsFor: []string{"d.e.f (2 of 3)"},
		},
		"failed": {
			namespace: makeInitializing(map[string]string{
				pending: "a.b.c", v1alpha1.AnnotationInitializationResult: `{"status":"Failure","message":"no budget"}`,
			}),
			state: diagnosis.StateFailed, since: testStart, isBlocked: true, cause: "InitializerFailing",
			waitsFor: []string{"deletion, because the initialization failed: no budget"},
		},
		"initialization blocked": {
			namespace: blocked, state: diagnosis.StateInitializing, since: testStart, isBlocked: true, cause: "Why",
			waitsFor: []string{"a.b.c (1 of 1)", "initializer does not run"},
		},
		"terminating, no true conditions": {
			namespace: makeTerminating(notTrue), state: diagnosis.StateTerminating, since: testEnd,
			waitsFor: []string{"the namespace controller"},
		},
		"terminating, with cause, errors, finalizers and remaining objects": {
			namespace: makeTerminating(
				trueCondition(corev1.NamespaceContentRemaining, "Some resources are remaining: "+
					"configmaps. has 3 resource instances, foos.example.com has 1 resource instances"),
				trueCondition(corev1.NamespaceFinalizersRemaining, "Some content in the namespace has finalizers remaining: "+
					"example.com/x in 3 resource instances, y in 1 resource instances"),
				trueCondition(corev1.NamespaceDeletionDiscoveryFailure, "Discovery failed for some groups"),
				trueCondition(v1alpha1.ConditionDeletionBlocked, "owner deleted")),
			state: diagnosis.StateTerminating, since: testEnd, isBlocked: true, cause: "Why",
			waitsFor: []string{
				"owner deleted", "Discovery failed for some groups",
				"finalizer example.com/x on 3 objects, finalizer y on 1 object", "3 configmaps, 1 foos.example.com",
			},
		},
		"messages in an unknown format": {
			namespace: makeTerminating(trueCondition(corev1.NamespaceContentRemaining, "many objects"),
				trueCondition(corev1.NamespaceFinalizersRemaining, "several finalizers")),
			state: diagnosis.StateTerminating, since: testEnd, waitsFor: []string{"several finalizers", "many objects"},
		},
		"finalizers of the Namespace": {
			namespace: withFinalizers, state: diagnosis.StateTerminating, since: testEnd,
			waitsFor: []string{"namespace finalizer corp.example.com/agent", "finalizer corp.example.com/own of the Namespace"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			summary := computeSummary(test.namespace)
			g.Expect(summary.State).To(Equal(test.state))
			g.Expect(summary.Since).To(Equal(test.since))
			g.Expect(summary.WaitsFor).To(Equal(test.waitsFor))
			g.Expect(summary.IsBlocked).To(Equal(test.isBlocked))
			g.Expect(summary.Cause).To(Equal(test.cause))
		})
	}
}

func TestSummaryTable(t *testing.T) {
	g := NewWithT(t)
	summaries := []namespaceSummary{
		{Metadata: metav1.ObjectMeta{Name: "active", CreationTimestamp: testStart}, State: diagnosis.StateInitialized, Since: testEnd},
		{Metadata: metav1.ObjectMeta{Name: "b", CreationTimestamp: testStart}, State: diagnosis.StateTerminating, Since: testEnd,
			WaitsFor: []string{"this", "that", "more"}, IsBlocked: true, Cause: "Why", RequestedBy: "me",
			DeletionProtection: notEnforced,
			Templates: []templates.Relation{
				{Template: "team", Match: &template.Match{Result: template.MatchSelected}},
				{Template: "base", Match: &template.Match{Result: template.MatchSelected}, IsOutdated: true},
				{Template: "old", Match: &template.Match{Result: template.MatchNearlySelected}},
				{Template: "app", Match: &template.Match{Result: template.MatchSelected}, Problem: "Unauthorized: no"},
			}},
	}
	now := testEnd.Add(time.Minute)
	render := func(isWide bool) string {
		var out strings.Builder
		g.Expect(printer.NewTablePrinter(&out, isWide, false).Print(summaryTable(summaries, now, isWide))).To(Succeed())
		return out.String()
	}
	narrow, wide := render(false), render(true)
	g.Expect(narrow).To(Equal("NAME     STATE         AGE   CAUSE    WAITING FOR\n" +
		"active   Initialized   61m   <none>   \nb        Terminating   61m   Why      this\n"))
	g.Expect(wide).To(MatchRegexp(`PROTECTED +CAUSE +WAITING FOR +ALSO WAITING FOR +TEMPLATES\n`))
	g.Expect(wide).To(MatchRegexp(`active +Initialized +61m +60s +<none> +no `))
	g.Expect(wide).To(MatchRegexp(`b +Terminating +61m +60s +me +not enforced +Why +this +that; more +team, base \(outdated\), old \(nearly selected\), app \(fails\)\n`))

	summaries[0].WaitsFor = []string{strings.Repeat("word ", 50)}
	g.Expect(strings.Split(render(false), "\n")).To(HaveLen(4), "rows are not wrapped")
}
