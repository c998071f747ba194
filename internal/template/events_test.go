// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

func TestEvents(t *testing.T) {
	// status returns a status with three namespaces.
	status := func(
		update, current string, outdated int32, progressing string, conditions ...metav1.Condition,
	) v1alpha1.NamespaceTemplateStatus {
		progress := map[string]metav1.ConditionStatus{
			v1alpha1.ReasonUpToDate: metav1.ConditionFalse, v1alpha1.ReasonIncomplete: metav1.ConditionFalse,
			v1alpha1.ReasonUpdating: metav1.ConditionTrue, v1alpha1.ReasonFailing: metav1.ConditionTrue,
		}[progressing]
		return v1alpha1.NamespaceTemplateStatus{
			UpdateRevision: update, CurrentRevision: current,
			Namespaces: &v1alpha1.TemplateNamespaceCounts{Desired: 3, Outdated: outdated},
			Conditions: append(conditions, metav1.Condition{
				Type: v1alpha1.ConditionProgressing, Status: progress, Reason: progressing,
			}),
		}
	}
	invalid := metav1.Condition{Type: v1alpha1.ConditionValid, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonInvalid}
	omitted := metav1.Condition{Type: v1alpha1.ConditionValid, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonTooManyTemplates}
	unauthorized := metav1.Condition{
		Type: v1alpha1.ConditionAuthorized, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonUnauthorized,
	}
	done, updating := status("a", "a", 0, v1alpha1.ReasonUpToDate), status("b", "a", 3, v1alpha1.ReasonUpdating)
	for name, test := range map[string]struct {
		before, after v1alpha1.NamespaceTemplateStatus
		want          []string
	}{
		"new, and no namespaces to update":  {after: v1alpha1.NamespaceTemplateStatus{}},
		"new, with existing namespaces":     {after: status("a", "a", 3, v1alpha1.ReasonUpdating), want: []string{"Normal RolloutStarted"}},
		"started":                           {before: done, after: updating, want: []string{"Normal RolloutStarted"}},
		"still updating":                    {before: updating, after: status("b", "a", 1, v1alpha1.ReasonUpdating)},
		"another revision":                  {before: updating, after: status("c", "a", 3, v1alpha1.ReasonUpdating), want: []string{"Normal RolloutStarted"}},
		"completed":                         {before: updating, after: status("b", "b", 0, v1alpha1.ReasonUpToDate), want: []string{"Normal RolloutCompleted"}},
		"completed before it was reported":  {before: done, after: status("b", "b", 0, v1alpha1.ReasonUpToDate), want: []string{"Normal RolloutCompleted"}},
		"completed, incomplete":             {before: updating, after: status("b", "b", 0, v1alpha1.ReasonIncomplete), want: []string{"Normal RolloutCompleted"}},
		"another generation, same revision": {before: done, after: status("a", "a", 0, v1alpha1.ReasonUpdating)},
		"the same, processed":               {before: status("a", "a", 0, v1alpha1.ReasonUpdating), after: done},
		"a failure without a rollout":       {before: done, after: status("a", "a", 0, v1alpha1.ReasonFailing)},
		"its end":                           {before: status("a", "a", 0, v1alpha1.ReasonFailing), after: done},
		"paused":                            {before: updating, after: status("b", "a", 2, v1alpha1.ReasonPaused), want: []string{"Normal RolloutPaused"}},
		"paused from the start":             {before: done, after: status("b", "a", 3, v1alpha1.ReasonPaused), want: []string{"Normal RolloutPaused"}},
		"still paused":                      {before: status("b", "a", 2, v1alpha1.ReasonPaused), after: status("b", "a", 2, v1alpha1.ReasonPaused)},
		"resumed":                           {before: status("b", "a", 2, v1alpha1.ReasonPaused), after: updating},
		"paused after failures": {
			before: updating, after: status("b", "a", 1, v1alpha1.ReasonPausedAfterFailures), want: []string{"Warning RolloutPausedAfterFailures"},
		},
		"invalid":       {before: done, after: status("x", "a", 3, v1alpha1.ReasonInvalid, invalid), want: []string{"Warning InvalidTemplate"}},
		"still invalid": {before: status("x", "a", 3, v1alpha1.ReasonInvalid, invalid), after: status("y", "a", 3, v1alpha1.ReasonInvalid, invalid)},
		"omitted":       {before: done, after: status("x", "a", 3, v1alpha1.ReasonTooManyTemplates, omitted), want: []string{"Warning TooManyTemplates"}},
		"still omitted": {before: status("x", "a", 3, v1alpha1.ReasonTooManyTemplates, omitted), after: status("x", "a", 3, v1alpha1.ReasonTooManyTemplates, omitted)},
		"omitted, then invalid": {
			before: status("x", "a", 3, v1alpha1.ReasonTooManyTemplates, omitted), after: status("x", "a", 3, v1alpha1.ReasonInvalid, invalid),
			want: []string{"Warning InvalidTemplate"},
		},
		"unauthorized":       {before: done, after: status("a", "a", 0, v1alpha1.ReasonUpToDate, unauthorized), want: []string{"Warning Unauthorized"}},
		"still unauthorized": {before: status("a", "a", 0, v1alpha1.ReasonUpToDate, unauthorized), after: status("a", "a", 0, v1alpha1.ReasonUpToDate, unauthorized)},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, event := range Events(&test.before, &test.after) {
				got = append(got, event.Type+" "+event.Reason)
			}
			NewWithT(t).Expect(got).To(Equal(test.want))
		})
	}
}

func TestFailureEvents(t *testing.T) {
	failure := func(namespace, object, reason string) v1alpha1.TemplateFailure {
		return v1alpha1.TemplateFailure{Namespace: namespace, Object: object, Reason: reason, Message: "text"}
	}
	type failures = []v1alpha1.TemplateFailure
	a := failure("a", "binding", "Forbidden")
	for name, test := range map[string]struct {
		before, after failures
		want          []Event
	}{
		"none":              {before: failures{a}},
		"new":               {after: failures{a}, want: []Event{{"Warning", "TemplateForbidden", `namespace "a", object "binding": text`}}},
		"the same":          {before: failures{a}, after: failures{a}},
		"another namespace": {before: failures{a}, after: failures{failure("b", "binding", "Forbidden"), a}},
		"two namespaces":    {after: failures{a, failure("b", "binding", "Forbidden")}, want: []Event{{"Warning", "TemplateForbidden", `namespace "a", object "binding": text`}}},
		"another reason":    {before: failures{a}, after: failures{failure("a", "binding", "InvalidObject")}, want: []Event{{"Warning", "TemplateInvalidObject", `namespace "a", object "binding": text`}}},
		"another message":   {before: failures{{Namespace: "a", Object: "binding", Reason: "Forbidden", Message: "x"}}, after: failures{a}, want: []Event{{"Warning", "TemplateForbidden", `namespace "a", object "binding": text`}}},
		"messages that name the namespaces": {
			before: failures{{Namespace: "a", Reason: "Forbidden", Message: `in "a"`}},
			after:  failures{{Namespace: "b", Reason: "Forbidden", Message: `in "b"`}},
		},
		"the whole template": {
			before: failures{a}, after: failures{failure("a", "", "Forbidden"), a}, want: []Event{{"Warning", "TemplateForbidden", `namespace "a": text`}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := Events(&v1alpha1.NamespaceTemplateStatus{Failures: test.before}, &v1alpha1.NamespaceTemplateStatus{Failures: test.after})
			NewWithT(t).Expect(got).To(Equal(test.want))
		})
	}
}
