// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

const rolledOut types.UID = "template"

func namespaceWithUID(uid types.UID) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{UID: uid, Labels: map[string]string{"uid": string(uid)}}}
}

func outcomeWith(revision string, reasons ...string) Outcome {
	outcome := Outcome{uid: rolledOut, Revision: revision}
	for _, reason := range reasons {
		outcome.Problems = append(outcome.Problems, Problem{Reason: reason})
	}
	return outcome
}

// What the users of a Namespace can cause does not count for the rollout, but the Namespace keeps the revision.
func TestRolloutsReport(t *testing.T) {
	tests := map[string]struct {
		outcome           Outcome
		isPaused, blocked bool
	}{
		"applied":                        {outcome: outcomeWith("b")},
		"failed":                         {outcome: outcomeWith("b", ReasonApplyFailed), isPaused: true},
		"an earlier revision failed":     {outcome: outcomeWith("a", ReasonApplyFailed)},
		"another template has an object": {outcome: outcomeWith("b", ReasonClaimed)},
		"failed and a conflict":          {outcome: outcomeWith("b", ReasonConflict, ReasonForbidden), isPaused: true},
		"a conflict":                     {outcome: outcomeWith("b", ReasonConflict), blocked: true},
		"an object of a user":            {outcome: outcomeWith("b", ReasonAlreadyExists), blocked: true},
		"a finalizer":                    {outcome: outcomeWith("b", ReasonTerminating), blocked: true},
		"an immutable field":             {outcome: outcomeWith("b", ReasonFieldImmutable), blocked: true},
		"no space for the record":        {outcome: outcomeWith("b", ReasonNotRecorded), blocked: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			rollouts, plan := &Rollouts{}, Plan{Latest: "b", Current: "a"}
			rollouts.Set(rolledOut, plan)
			rollouts.report("ns", test.outcome)
			g.Expect(rollouts.IsPaused(rolledOut)).To(Equal(test.isPaused))
			g.Expect(rollouts.IsBlocked(rolledOut, "ns")).To(Equal(test.blocked))
			plan.Rollout.Paused = true
			rollouts.Set(rolledOut, plan)
			revision, _, _ := rollouts.choose(rolledOut, namespaceWithUID("ns"), false, Entry{Revision: "a"}, time.Now())
			want := "a"
			if test.isPaused || test.blocked {
				want = "b"
			}
			g.Expect(revision).To(Equal(want))
			plan.Latest = "c"
			rollouts.Set(rolledOut, plan)
			g.Expect(rollouts.IsPaused(rolledOut) || rollouts.IsBlocked(rolledOut, "ns")).To(BeFalse())
		})
	}
}

func TestRolloutsChoose(t *testing.T) {
	paused := v1alpha1.TemplateRollout{Paused: true}
	dev := v1alpha1.TemplateRollout{Canary: &v1alpha1.NamespaceSelector{
		MatchLabels: map[string]v1alpha1.LabelValue{"uid": "dev"},
	}}
	atA, atB := Entry{Revision: "a"}, Entry{Revision: "b"}
	tests := map[string]struct {
		plan           Plan
		isInitializing bool
		recorded       Entry
		failed         types.UID
		want           string
	}{
		"new": {
			plan: Plan{Latest: "b", Current: "a"}, isInitializing: true, want: "a",
		},
		"outdated":   {plan: Plan{Latest: "b", Current: "a"}, recorded: atA, want: "b"},
		"up to date": {plan: Plan{Latest: "b", Current: "a", Rollout: paused}, recorded: atB, want: "b"},
		"paused":     {plan: Plan{Latest: "b", Current: "a", Rollout: paused}, recorded: atA, want: "a"},
		"not a canary": {
			plan: Plan{Latest: "b", Current: "a", IsCanaryPhase: true, Rollout: dev}, recorded: atA, want: "a",
		},
		"invalid revision": {plan: Plan{Current: "a"}, recorded: atA, want: "a"},
		"paused because another namespace has failed": {
			plan: Plan{Latest: "b", Current: "a"}, recorded: atA, failed: "other", want: "a",
		},
		"paused because this namespace has failed": {
			plan: Plan{Latest: "b", Current: "a"}, recorded: atA, failed: "ns", want: "b",
		},
		"without the template": {plan: Plan{Latest: "a", Current: "a"}, want: "a"},
		"without the template while the rollout is paused": {
			plan: Plan{Latest: "b", Current: "a", Rollout: paused}, want: "a",
		},
		"without the template and not a canary": {
			plan: Plan{Latest: "b", Current: "a", IsCanaryPhase: true, Rollout: dev}, want: "a",
		},
		"without the template while the revision is invalid": {plan: Plan{Current: "a"}, want: "a"},
		"without the template while no revision is valid":    {want: ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			rollouts := &Rollouts{}
			rollouts.Set(rolledOut, test.plan)
			if test.failed != "" {
				rollouts.report(test.failed, outcomeWith(test.plan.Latest, ReasonApplyFailed))
			}
			got, wait, known := rollouts.choose(
				rolledOut, namespaceWithUID("ns"), test.isInitializing, test.recorded, time.Now())
			g.Expect(known).To(BeTrue())
			g.Expect(wait).To(BeZero())
			g.Expect(got).To(Equal(test.want))
		})
	}
}

func TestRolloutsLimitTheRate(t *testing.T) {
	g := NewWithT(t)
	rollouts, now := &Rollouts{}, time.Now()
	rollouts.Set(rolledOut, Plan{Latest: "b", Current: "b", Rollout: v1alpha1.TemplateRollout{RatePerSecond: 1}})
	for i, want := range []time.Duration{0, time.Second, 2 * time.Second} {
		_, wait, _ := rollouts.choose(rolledOut, namespaceWithUID(types.UID(string(rune('a'+i)))), false, Entry{}, now)
		g.Expect(wait).To(Equal(want))
	}
}

// The pause because of failures ends, and Set reports this, as soon as there are fewer failures.
func TestRolloutsResume(t *testing.T) {
	tests := map[string]func(*Rollouts){
		"the revision is applied":      func(r *Rollouts) { r.report("ns", outcomeWith("b")) },
		"the namespace is deleted":     func(r *Rollouts) { r.forget("ns") },
		"the template does not select": func(r *Rollouts) { r.forget("ns", &v1alpha1.NamespaceTemplate{}) },
	}
	for name, resume := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			rollouts, plan := &Rollouts{}, Plan{Latest: "b", Current: "a"}
			g.Expect(rollouts.Set(rolledOut, plan)).To(BeTrue())
			rollouts.report("ns", outcomeWith("b", ReasonApplyFailed))
			rollouts.forget("ns", &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{UID: rolledOut}})
			g.Expect(rollouts.IsPaused(rolledOut)).To(BeTrue())
			g.Expect(rollouts.Set(rolledOut, plan)).To(BeFalse())

			resume(rollouts)
			g.Expect(rollouts.IsPaused(rolledOut)).To(BeFalse())
			g.Expect(rollouts.Set(rolledOut, plan)).To(BeTrue())
			g.Expect(rollouts.Set(rolledOut, plan)).To(BeFalse())
		})
	}
}

// Namespaces can have waited although no call of Set has observed the pause.
func TestRolloutsReportAShortPause(t *testing.T) {
	g := NewWithT(t)
	rollouts, plan := &Rollouts{}, Plan{Latest: "b", Current: "a"}
	rollouts.Set(rolledOut, plan)
	rollouts.report("ns", outcomeWith("b", ReasonApplyFailed))
	rollouts.report("ns", outcomeWith("b"))
	g.Expect(rollouts.Set(rolledOut, plan)).To(BeTrue())
}
