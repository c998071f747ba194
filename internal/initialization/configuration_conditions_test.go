// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

func TestConfigurationConditions(t *testing.T) {
	const isTrue, isFalse = metav1.ConditionTrue, metav1.ConditionFalse
	healthy := metav1.Condition{Type: "Healthy", Status: isTrue, Reason: "Healthy"}
	for name, test := range map[string]struct {
		status          metav1.ConditionStatus
		reason          string
		healthy         metav1.Condition
		ready, reported string
		isStalled       bool
	}{
		"enforced": {status: isTrue, reason: "Enforced", healthy: healthy, ready: "True", reported: "Enforced"},
		"empty":    {status: isTrue, reason: "Empty", healthy: healthy, ready: "True", reported: "Empty"},
		"pending":  {status: isFalse, reason: "EnforcementPending", healthy: healthy, ready: "False", reported: "EnforcementPending"},
		"rejected": {status: isFalse, reason: "Rejected", healthy: healthy, ready: "False", reported: "Rejected"},
		"unhealthy": {
			status: isTrue, reason: "Enforced", healthy: metav1.Condition{Type: "Healthy", Status: isFalse, Reason: "InitializerUnresponsive"},
			ready: "False", reported: "InitializerUnresponsive",
		},
		"health unknown": {
			status: isTrue, reason: "Enforced", healthy: metav1.Condition{Type: "Healthy", Status: "Unknown"},
			ready: "True", reported: "Enforced",
		},
		"neither active nor healthy": {
			status: isFalse, reason: "PolicyMissing", healthy: metav1.Condition{Type: "Healthy", Status: isFalse},
			ready: "False", reported: "PolicyMissing",
		},
		"too many": {
			status: isFalse, reason: "TooManyInitializers", healthy: healthy,
			ready: "False", reported: "TooManyInitializers", isStalled: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			active := metav1.Condition{Type: "Active", Status: test.status, Reason: test.reason, Message: "x"}
			conditions := ConfigurationConditions(active, test.healthy)
			g.Expect(conditions[:3]).To(HaveExactElements(
				And(HaveField("Type", "Ready"), HaveField("Status", metav1.ConditionStatus(test.ready)), HaveField("Reason", test.reported)),
				Equal(active), Equal(test.healthy)))
			if !test.isStalled {
				g.Expect(conditions).To(HaveLen(3))
				return
			}
			g.Expect(conditions[3:]).To(ConsistOf(metav1.Condition{Type: "Stalled", Status: isTrue, Reason: test.reason, Message: "x"}))
		})
	}
}

func TestConfigurationEvents(t *testing.T) {
	conditions := func(active metav1.ConditionStatus, reason string, healthy metav1.ConditionStatus) []metav1.Condition {
		return ConfigurationConditions(metav1.Condition{Type: v1alpha1.ConditionActive, Status: active, Reason: reason},
			metav1.Condition{Type: v1alpha1.ConditionHealthy, Status: healthy, Reason: "x"})
	}
	enforced := conditions("True", "Enforced", "True")
	pending := conditions("False", "EnforcementPending", "True")
	for name, test := range map[string]struct {
		before, after []metav1.Condition
		want          []string
	}{
		"new":                   {after: enforced, want: []string{"Normal Enforced"}},
		"unchanged":             {before: enforced, after: enforced},
		"new and pending":       {after: pending},
		"no longer enforced":    {before: enforced, after: pending, want: []string{"Warning NotEnforced"}},
		"a policy is missing":   {after: conditions("False", "PolicyMissing", "True"), want: []string{"Warning NotEnforced"}},
		"missing after pending": {before: pending, after: conditions("False", "PolicyMissing", "True"), want: []string{"Warning NotEnforced"}},
		"still missing": {
			before: conditions("False", "Rejected", "True"), after: conditions("False", "PolicyMissing", "True"),
		},
		"enforced again":       {before: pending, after: enforced, want: []string{"Normal Enforced"}},
		"unhealthy":            {before: enforced, after: conditions("True", "Enforced", "False"), want: []string{"Warning InitializerUnhealthy"}},
		"healthy again":        {before: conditions("True", "Enforced", "False"), after: enforced},
		"new and unhealthy":    {after: conditions("True", "Enforced", "False"), want: []string{"Normal Enforced", "Warning InitializerUnhealthy"}},
		"of an unknown health": {before: enforced, after: conditions("True", "Enforced", "Unknown")},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, event := range ConfigurationEvents(test.before, test.after) {
				got = append(got, event.Type+" "+event.Reason)
			}
			NewWithT(t).Expect(got).To(Equal(test.want))
		})
	}
}
