// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0
package template

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

func TestTracker(t *testing.T) {
	outcome := func(revision string, problems ...Problem) Outcome {
		return Outcome{Template: "a", Revision: revision, Problems: problems}
	}
	failed := Problem{Template: "a", Object: "config", Reason: ReasonForbidden, Message: "x"}
	claimed := Problem{Template: "a", Reason: ReasonClaimed, Message: "y"}
	g := NewWithT(t)
	var tracker Tracker
	g.Expect(tracker.Set("ready", []Outcome{outcome("1")})).To(Equal([]string{"a"}))
	g.Expect(tracker.Set("ready", []Outcome{outcome("1")})).To(BeEmpty(), "nothing has changed")
	tracker.Set("outdated", []Outcome{outcome("0")})
	tracker.Set("waiting", []Outcome{{Template: "a", Revision: "1", Waiting: []Problem{failed}}})
	tracker.Set("claimed", []Outcome{outcome("1", claimed)})
	tracker.Set("both", []Outcome{outcome("1", claimed, failed), {Template: "b"}})
	counts, failures := tracker.Status("a", "1")
	g.Expect(counts).To(Equal(v1alpha1.TemplateNamespaceCounts{Selected: 5, Ready: 1, Pending: 2, Failed: 1, Conflicted: 1}))
	g.Expect(failures).To(Equal([]v1alpha1.TemplateFailure{
		{Namespace: "both", Reason: ReasonClaimed, Message: "y"},
		{Namespace: "both", Object: "config", Reason: ReasonForbidden, Message: "x"},
		{Namespace: "claimed", Reason: ReasonClaimed, Message: "y"},
	}))
	g.Expect(tracker.Problems("both")).To(Equal([]Problem{claimed, failed}))
	g.Expect(tracker.Set("both", []Outcome{outcome("1")})).To(Equal([]string{"a", "b"}))
	for i := range 20 {
		long := failed
		long.Message = strings.Repeat("x", 5000)
		tracker.Set(fmt.Sprintf("failed-%02d", i), []Outcome{outcome("1", long)})
	}
	_, failures = tracker.Status("a", "1")
	g.Expect(failures).To(HaveLen(maxFailures))
	g.Expect(len(failures[9].Message)).To(BeNumerically("<=", maxFailureMessage))
	for namespace := range tracker.byNamespace {
		tracker.Set(namespace, nil)
	}
	g.Expect(tracker.byNamespace).To(BeEmpty())
	g.Expect(tracker.byTemplate).To(BeEmpty())
}

func TestTrackerIsComplete(t *testing.T) {
	g := NewWithT(t)
	var tracker Tracker
	namespaces := []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "one"}}, {ObjectMeta: metav1.ObjectMeta{Name: "two"}}}
	g.Expect(tracker.IsComplete(namespaces)).To(BeFalse())
	tracker.Set("one", nil)
	g.Expect(tracker.IsComplete(namespaces)).To(BeFalse())
	tracker.Processed("two")
	g.Expect(tracker.IsComplete(namespaces)).To(BeTrue())
	namespaces = append(namespaces, corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "new"}})
	g.Expect(tracker.IsComplete(namespaces)).To(BeTrue(), "the counts are complete since the first pass")
	g.Expect(tracker.processed).To(BeEmpty())
}

func TestConditions(t *testing.T) {
	tests := map[string]struct {
		counts     v1alpha1.TemplateNamespaceCounts
		invalid    field.ErrorList
		authorized metav1.ConditionStatus
		isPaused   bool
		isOmitted  bool
		status     v1alpha1.NamespaceTemplateStatus
		want       map[string]string
	}{
		"paused after failures": {
			counts:   v1alpha1.TemplateNamespaceCounts{Selected: 3, Ready: 1, Failed: 2},
			isPaused: true, status: v1alpha1.NamespaceTemplateStatus{Revision: "b", CurrentRevision: "a"},
			want: map[string]string{"Progressing": "PausedAfterFailures"},
		},
		"up to date": {
			counts: v1alpha1.TemplateNamespaceCounts{Selected: 2, Ready: 2},
			want:   map[string]string{"Valid": "Valid", "Authorized": "Authorized", "Progressing": "UpToDate", "Conflicted": "NoConflict"},
		},
		"everything is wrong": {
			counts:  v1alpha1.TemplateNamespaceCounts{Selected: 3, Failed: 1, Conflicted: 1, Pending: 1},
			invalid: field.ErrorList{field.Invalid(field.NewPath("spec"), strings.Repeat("x", 100000), "bad")}, authorized: metav1.ConditionFalse,
			want: map[string]string{"Valid": "Invalid", "Authorized": "Unauthorized", "Progressing": "Failing", "Conflicted": "Conflicting"},
		},
		"undetermined":        {authorized: metav1.ConditionUnknown, want: map[string]string{"Authorized": "Undetermined"}},
		"omitted":             {isOmitted: true, want: map[string]string{"Valid": "TooMany"}},
		"invalid and omitted": {isOmitted: true, invalid: field.ErrorList{field.Required(field.NewPath("spec"), "")}, want: map[string]string{"Valid": "Invalid"}},
		"updating": {
			counts: v1alpha1.TemplateNamespaceCounts{Selected: 2, Ready: 1, Pending: 1},
			want:   map[string]string{"Valid": "Valid", "Authorized": "Authorized", "Progressing": "Updating", "Conflicted": "NoConflict"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			template := &v1alpha1.NamespaceTemplate{Status: test.status}
			template.Status.Namespaces = &test.counts
			conditions := Conditions(template, ConditionInput{
				Errors: test.invalid, Authorized: cmp.Or(test.authorized, metav1.ConditionTrue), AuthorizedMessage: "a",
				HasFailurePause: test.isPaused, IsOmitted: test.isOmitted,
			})
			for conditionType, reason := range test.want {
				condition := meta.FindStatusCondition(conditions, conditionType)
				g.Expect(condition.Reason).To(Equal(reason), conditionType)
				g.Expect(len(condition.Message)).To(And(BeNumerically(">", 0), BeNumerically("<=", maxConditionMessage)))
			}
		})
	}
}

func TestSampleOf(t *testing.T) {
	tests := map[string]struct {
		rules []rbacv1.PolicyRule
		want  *authorizationv1.ResourceAttributes
	}{
		"no rules":   {},
		"a URL rule": {rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/x"}}}},
		"a URL rule, and a rule for a named resource": {
			[]rbacv1.PolicyRule{
				{Verbs: []string{"get"}, NonResourceURLs: []string{"/x"}},
				{Verbs: []string{"get", "list"}, APIGroups: []string{"apps"}, Resources: []string{"deployments"}, ResourceNames: []string{"a", "b"}},
			},
			&authorizationv1.ResourceAttributes{Namespace: "ns", Verb: "get", Group: "apps", Resource: "deployments", Name: "a"},
		},
		"a subresource": {
			[]rbacv1.PolicyRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"pods/log"}}},
			&authorizationv1.ResourceAttributes{Namespace: "ns", Verb: "*", Group: "*", Resource: "pods", Subresource: "log"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(sampleOf(test.rules, "ns")).To(Equal(test.want))
		})
	}
}

func TestReviewOf(t *testing.T) {
	const all = "system:authenticated"
	tests := map[string]struct {
		subject rbacv1.Subject
		user    string
		groups  []string
	}{
		"a user":  {rbacv1.Subject{Kind: "User", Name: "alice"}, "alice", []string{all}},
		"a group": {rbacv1.Subject{Kind: "Group", Name: "team"}, "", []string{"team"}},
		"a ServiceAccount": {rbacv1.Subject{Kind: "ServiceAccount", Namespace: "ci", Name: "bot"}, "system:serviceaccount:ci:bot",
			[]string{all, "system:serviceaccounts", "system:serviceaccounts:ci"}},
		"a ServiceAccount of the Namespace": {rbacv1.Subject{Kind: "ServiceAccount", Name: "bot"}, "system:serviceaccount:ns:bot",
			[]string{all, "system:serviceaccounts", "system:serviceaccounts:ns"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			spec := reviewOf(test.subject, &authorizationv1.ResourceAttributes{Namespace: "ns"})
			g.Expect(spec.User).To(Equal(test.user))
			g.Expect(spec.Groups).To(Equal(test.groups))
		})
	}
}
