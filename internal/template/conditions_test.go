// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"cmp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

func TestConditions(t *testing.T) {
	const isTrue, isFalse, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	invalid := field.ErrorList{field.Invalid(field.NewPath("spec"), strings.Repeat("x", 100000), "bad")}
	rollout := v1alpha1.NamespaceTemplateStatus{UpdateRevision: "b", CurrentRevision: "a"}
	type counts = v1alpha1.TemplateNamespaceCounts
	tests := map[string]struct {
		counts       counts
		input        ConditionInput
		isUnfinished bool
		isPaused     bool
		isOnce       bool
		status       v1alpha1.NamespaceTemplateStatus
		// ready and progressing are "Status/Reason"; stalled is a reason.
		ready, progressing, stalled string
		want                        map[string]string
		message                     string
	}{
		"up to date": {
			counts: counts{Desired: 2, Updated: 2}, ready: "True/UpToDate", progressing: "False/UpToDate",
			want: map[string]string{"Valid": "Valid", "Authorized": "Authorized", "Conflicted": "NoConflict"}, message: "All 2 desired",
		},
		"up to date, applied once": {
			counts: counts{Desired: 2, Updated: 2}, isOnce: true, ready: "True/UpToDate", progressing: "False/UpToDate",
			message: "All 2 desired namespaces contain revision  or, because of sync.mode Once, another one.",
		},
		"a missing source": {
			input: ConditionInput{MissingSource: "it does not exist"}, ready: "False/SourceNotFound", progressing: "False/UpToDate",
		},
		"nothing is selected": {ready: "True/UpToDate", progressing: "False/UpToDate"},
		"not applied to all namespaces yet": {
			counts: counts{Desired: 2, Updated: 2}, isUnfinished: true, ready: "False/Updating", progressing: "True/Updating",
		},
		"updating": {
			counts: counts{Desired: 2, Updated: 1, Outdated: 1}, ready: "False/Updating", progressing: "True/Updating",
		},
		"new namespaces do not get the revision yet": {
			counts: counts{Desired: 2, Updated: 2}, status: rollout, ready: "False/Updating", progressing: "True/Updating",
		},
		"canaries": {
			counts: counts{Desired: 2, Outdated: 2}, status: rollout, input: ConditionInput{IsCanaryPhase: true},
			ready: "False/Updating", progressing: "True/Updating", message: "canaries",
		},
		"minReadySeconds": {
			counts: counts{Desired: 3, Updated: 1, Outdated: 1, Failed: 1}, status: rollout,
			input: ConditionInput{IsCanaryPhase: true, Failing: 1, CanaryWaitEnd: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)},
			ready: "False/WaitingForMinReadySeconds", progressing: "True/WaitingForMinReadySeconds", message: "2026-01-01T00:00:00Z",
		},
		"some failures in a rollout": {
			counts: counts{Desired: 3, Outdated: 2, Failed: 1}, status: rollout, input: ConditionInput{Failing: 1},
			ready: "False/Failing", progressing: "True/Failing", message: "1 failed",
		},
		"a failure without a rollout": {
			counts: counts{Desired: 3, Updated: 2, Failed: 1}, input: ConditionInput{Failing: 1},
			ready: "False/Failing", progressing: "True/Failing",
		},
		"local problems": {
			counts: counts{Desired: 6, Updated: 3, Failed: 1, Conflicted: 2}, ready: "True/Incomplete", progressing: "False/Incomplete",
			want: map[string]string{"Conflicted": "Conflicting"}, message: "3 of 6 desired namespaces contain revision . 1 failed. Objects conflict in 2",
		},
		"a local failure": {
			counts: counts{Desired: 2, Updated: 1, Failed: 1}, ready: "True/Incomplete", progressing: "False/Incomplete",
			message: "1 of 2 desired namespaces contain revision . 1 failed.",
		},
		"local problems in a rollout": {
			counts: counts{Desired: 6, Outdated: 3, Conflicted: 3}, status: rollout, ready: "False/Updating", progressing: "True/Updating",
		},
		"paused": {
			counts: counts{Desired: 2, Outdated: 2}, status: rollout, isPaused: true,
			ready: "False/Paused", progressing: "Unknown/Paused",
		},
		"paused, and all is done": {
			counts: counts{Desired: 2, Updated: 2}, isPaused: true, ready: "True/UpToDate", progressing: "False/UpToDate",
		},
		"paused after failures": {
			counts: counts{Desired: 3, Updated: 1, Failed: 2}, status: rollout,
			input: ConditionInput{HasFailurePause: true, Failing: 2}, ready: "False/PausedAfterFailures",
			progressing: "Unknown/PausedAfterFailures",
		},
		"invalid, and everything else is wrong": {
			counts: counts{Desired: 3, Failed: 1, Conflicted: 1, Outdated: 1}, status: rollout,
			input: ConditionInput{Errors: invalid, Authorized: isFalse, IsOmitted: true, Failing: 1, HasFailurePause: true},
			ready: "False/Invalid", progressing: "Unknown/Invalid", stalled: "Invalid",
			want: map[string]string{"Valid": "Invalid", "Authorized": "Unauthorized", "Conflicted": "Conflicting"},
		},
		"omitted": {
			input: ConditionInput{IsOmitted: true}, ready: "False/TooManyTemplates", progressing: "Unknown/TooManyTemplates",
			stalled: "TooManyTemplates", want: map[string]string{"Valid": "TooManyTemplates"},
		},
		"unauthorized for less than a minute": {
			counts: counts{Desired: 1, Failed: 1}, input: ConditionInput{Authorized: isFalse, Failing: 1, UnauthorizedFor: time.Minute - 1},
			ready: "False/Unauthorized", progressing: "True/Failing", message: "authorization",
		},
		"unauthorized for a minute": {
			input: ConditionInput{Authorized: isFalse, UnauthorizedFor: time.Minute},
			ready: "False/Unauthorized", progressing: "False/UpToDate", stalled: "Unauthorized",
		},
		"authorization unknown": {
			input: ConditionInput{Authorized: unknown, UnauthorizedFor: time.Hour}, ready: "True/UpToDate", progressing: "False/UpToDate",
			want: map[string]string{"Authorized": "AuthorizationUnknown"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			template := &v1alpha1.NamespaceTemplate{Status: test.status}
			template.Spec.Rollout.Paused = test.isPaused
			if test.isOnce {
				template.Spec.Sync.Mode = v1alpha1.SyncOnce
			}
			template.Status.Namespaces = &test.counts
			input := test.input
			input.Authorized, input.AuthorizedMessage = cmp.Or(input.Authorized, isTrue), "authorization"
			input.IsProcessed = !test.isUnfinished
			conditions := Conditions(template, input)
			for _, condition := range conditions {
				g.Expect(len(condition.Message)).To(And(BeNumerically(">", 0), BeNumerically("<=", MaxConditionMessage)))
			}
			describe := func(conditionType string) string {
				found := meta.FindStatusCondition(conditions, conditionType)
				return string(found.Status) + "/" + found.Reason
			}
			g.Expect(describe("Ready")).To(Equal(test.ready))
			g.Expect(describe("Progressing")).To(Equal(test.progressing))
			g.Expect(meta.FindStatusCondition(conditions, "Ready").Message).To(ContainSubstring(test.message))
			for conditionType, reason := range test.want {
				g.Expect(meta.FindStatusCondition(conditions, conditionType).Reason).To(Equal(reason), conditionType)
			}
			stalled := meta.FindStatusCondition(conditions, "Stalled")
			if test.stalled == "" {
				g.Expect(stalled).To(BeNil())
				return
			}
			g.Expect(stalled).To(HaveValue(And(HaveField("Status", isTrue), HaveField("Reason", test.stalled),
				HaveField("Message", meta.FindStatusCondition(conditions, "Ready").Message))))
		})
	}
}
