// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nscache"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
)

const rolledOut types.UID = "template"

var start = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

func rolloutsAt(now time.Time) *Rollouts {
	return &Rollouts{Clock: clocktesting.NewFakePassiveClock(now)}
}

func namespaceWithUID(uid types.UID) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: string(uid), UID: uid}}
}

func resultWith(revision string, reasons ...string) plan.Outcome {
	outcome := plan.TemplateOutcome{UID: rolledOut, Revision: revision}
	for _, reason := range reasons {
		outcome.Problems = append(outcome.Problems, template.Problem{Reason: reason})
	}
	return plan.Outcome{Templates: []plan.TemplateOutcome{outcome}}
}

func TestRolloutsLimitTheRate(t *testing.T) {
	g, rollouts := NewWithT(t), rolloutsAt(start)
	rollout := plan.Rollout{Latest: "b", Current: "b", Settings: v1alpha1.TemplateRollout{MaxNamespacesPerSecond: 1}}
	rollouts.Set(rolledOut, rollout)
	choose := func(namespace types.UID) time.Duration {
		tmpl := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{UID: rolledOut}}
		choice, err := rollouts.choose(namespaceWithUID(namespace), tmpl, template.Entry{Revision: "a"})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(choice).To(Equal(plan.Choice{Revision: map[bool]string{true: "b", false: "a"}[choice.Delay == 0], Current: "b", Delay: choice.Delay}))
		return choice.Delay
	}
	for namespace, want := range []time.Duration{0, time.Second, 2 * time.Second} {
		g.Expect(choose(types.UID(rune('a' + namespace)))).To(Equal(want))
	}
	g.Expect(choose("c")).To(Equal(2*time.Second), "it has a slot")
	rollout.Settings.MaxNamespacesPerSecond = 20
	g.Expect(rollouts.Set(rolledOut, rollout)).To(BeFalse(), "no Namespace gets another revision")
	g.Expect(choose("c")).To(BeZero(), "the slots are void")
}

// The pause because of failures ends, and Set reports this, as soon as there are fewer failures.
func TestRolloutsResume(t *testing.T) {
	tests := map[string]func(*Rollouts){
		"the revision is applied":      func(r *Rollouts) { r.Report(namespaceWithUID("ns"), resultWith("b")) },
		"the template does not select": func(r *Rollouts) { r.Report(namespaceWithUID("ns"), plan.Outcome{}) },
		"the namespace is deleted": func(r *Rollouts) {
			r.Forget("ns")
		},
		// Namespaces can have waited although no call of Set has observed the pause.
		"the failures are short": func(r *Rollouts) {
			r.Report(namespaceWithUID("ns"), resultWith("b"))
			r.Set(rolledOut, plan.Rollout{Latest: "b", Current: "a"})
			r.Report(namespaceWithUID("ns"), resultWith("b", v1alpha1.ReasonApplyFailed))
			r.Report(namespaceWithUID("ns"), resultWith("b"))
		},
	}
	for name, resume := range tests {
		t.Run(name, func(t *testing.T) {
			g, rollouts, rollout := NewWithT(t), rolloutsAt(start), plan.Rollout{Latest: "b", Current: "a"}
			g.Expect(rollouts.Set(rolledOut, rollout)).To(BeTrue())
			rollouts.Report(namespaceWithUID("ns"), resultWith("b", v1alpha1.ReasonApplyFailed))
			g.Expect(rollouts.Get(rolledOut).HasFailurePause()).To(BeTrue())
			g.Expect(rollouts.Set(rolledOut, rollout)).To(BeFalse())

			resume(rollouts)
			g.Expect(rollouts.Get(rolledOut).HasFailurePause()).To(BeFalse())
			g.Expect(rollouts.Set(rolledOut, rollout)).To(BeTrue())
			g.Expect(rollouts.Set(rolledOut, rollout)).To(BeFalse())
			rollouts.Report(namespaceWithUID("other"), resultWith("c", v1alpha1.ReasonApplyFailed))
			g.Expect(rollouts.Set(rolledOut, plan.Rollout{Latest: "c", Current: "a"})).To(BeTrue())
			g.Expect(rollouts.Get(rolledOut).HasFailurePause()).To(BeTrue(), "a failure before the rollout is known")
			rollouts.retain(nil)
			g.Expect(rollouts.Get(rolledOut)).To(BeZero())
		})
	}
}

func TestFailingCanaries(t *testing.T) {
	g, rollouts, rollout := NewWithT(t), rolloutsAt(start), plan.Rollout{Latest: "b", Current: "a"}
	rollouts.Set(rolledOut, rollout)
	canary, other := resultWith("b", v1alpha1.ReasonApplyFailed), resultWith("b", v1alpha1.ReasonApplyFailed)
	canary.Templates[0].IsCanary = true
	rollouts.Report(namespaceWithUID("canary"), canary)
	rollouts.Report(namespaceWithUID("other"), other)
	unsynced := resultWith("b", v1alpha1.ReasonWatchNotSynced)
	unsynced.Templates[0].IsCanary = true
	rollouts.Report(namespaceWithUID("unsynced"), unsynced)
	for range 2 {
		g.Expect(rollouts.Get(rolledOut)).To(And(HaveField("Failing", 3), HaveField("FailingCanaries", 1)))
		// Otherwise, each failure in a canary would cause a pass over all Namespaces.
		rollout.CanariesUpdated.Time = rollout.CanariesUpdated.Add(time.Hour)
		g.Expect(rollouts.Set(rolledOut, rollout)).To(BeFalse())
	}
	rollouts.Report(namespaceWithUID("canary"), resultWith("b"))
	g.Expect(rollouts.Get(rolledOut)).To(And(HaveField("Failing", 2), HaveField("FailingCanaries", 0)))
}

// The cache does not know the labels of partial Namespaces.
func TestPartialNamespaces(t *testing.T) {
	g, rollouts := NewWithT(t), rolloutsAt(start)
	namespace := namespaceWithUID("ns")
	partial := namespace.DeepCopy()
	partial.Annotations = map[string]string{v1alpha1.Prefix + "/digest": "x"}
	g.Expect(nscache.IsPartial(partial)).To(BeTrue())
	current := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{UID: rolledOut, Generation: 1}}
	current.Spec.Rollout.CanarySelector = &v1alpha1.NamespaceSelector{MatchLabels: map[string]v1alpha1.LabelValue{"tier": "dev"}}
	rollouts.Set(rolledOut, plan.Rollout{Latest: "b", Current: "a"})
	g.Expect(rollouts.MayBeCanary(current, namespace)).To(BeFalse())
	g.Expect(rollouts.MayBeCanary(current, partial)).To(BeTrue(), "before the first pass")
	for _, isCanary := range []bool{false, true} {
		rollouts.Report(namespace, plan.Outcome{Templates: []plan.TemplateOutcome{{UID: rolledOut, Generation: 1, IsCanary: isCanary}}})
		g.Expect(rollouts.MayBeCanary(current, partial)).To(Equal(isCanary))
	}
	g.Expect(rollouts.Ignores(rolledOut, partial)).To(BeFalse())
	rollouts.Report(namespace, plan.Outcome{Deselected: []types.UID{rolledOut}})
	g.Expect(rollouts.Ignores(rolledOut, partial)).To(BeTrue())
	current.Generation++
	g.Expect(rollouts.MayBeCanary(current, partial)).To(BeTrue(), "before the first pass with another selector")
}

// What the passes over a Namespace report is forgotten with the Namespace.
func TestRecreatedNamespaces(t *testing.T) {
	g, r, namespace := NewWithT(t), rolloutsAt(start), namespaceWithUID("ns")
	r.Set(rolledOut, plan.Rollout{Latest: "b", Current: "a"})
	r.Report(namespace, resultWith("b", v1alpha1.ReasonApplyFailed))
	recreated := namespace.DeepCopy()
	recreated.UID = "recreated"
	r.Processed(recreated)
	g.Expect(r.Get(rolledOut).Failing).To(BeZero(), "a deleted Namespace does not pause a rollout")
	r.Forget("other")
	r.Forget("ns")
	g.Expect(r.byName).To(BeEmpty())
	_, err := r.choose(namespace, &v1alpha1.NamespaceTemplate{}, template.Entry{})
	g.Expect(err).To(MatchError(template.ErrNotSynced), "the template has no rollout yet")
}
