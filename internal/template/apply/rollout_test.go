// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nscache"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
)

const rolledOut types.UID = "template"

func namespaceWithUID(uid types.UID) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: string(uid), UID: uid}}
}

func resultWith(revision string, reasons ...string) plan.Result {
	outcome := plan.Outcome{UID: rolledOut, Revision: revision}
	for _, reason := range reasons {
		outcome.Problems = append(outcome.Problems, template.Problem{Reason: reason})
	}
	return plan.Result{Templates: []plan.Outcome{outcome}}
}

func TestRolloutsLimitTheRate(t *testing.T) {
	g, records := NewWithT(t), recordsAt(time.Now())
	rollout := plan.Rollout{Latest: "b", Current: "b", Settings: v1alpha1.TemplateRollout{MaxNamespacesPerSecond: 1}}
	records.SetRollout(rolledOut, rollout)
	choose := func(namespace types.UID) time.Duration {
		record := records.Begin(namespaceWithUID(namespace))
		defer records.End(record)
		_, delay, err := records.next(record, rolledOut, template.Entry{}, false, false)
		g.Expect(err).NotTo(HaveOccurred())
		return delay
	}
	for namespace, want := range []time.Duration{0, time.Second, 2 * time.Second} {
		g.Expect(choose(types.UID(rune('a' + namespace)))).To(Equal(want))
	}
	g.Expect(choose("c")).To(Equal(2*time.Second), "it has a slot")
	rollout.Settings.MaxNamespacesPerSecond = 20
	g.Expect(records.SetRollout(rolledOut, rollout)).To(BeFalse(), "no Namespace gets another revision")
	g.Expect(choose("c")).To(BeZero(), "the slots are void")
}

// The pause because of failures ends, and SetRollout reports this, as soon as there are fewer failures.
func TestRolloutsResume(t *testing.T) {
	tests := map[string]func(*Records, *Record){
		"the revision is applied":      func(r *Records, record *Record) { r.Report(record, resultWith("b")) },
		"the template does not select": func(r *Records, record *Record) { r.Report(record, plan.Result{}) },
		"the namespace is deleted": func(r *Records, record *Record) {
			r.End(record)
			r.Forget("ns")
		},
		// Namespaces can have waited although no call of SetRollout has observed the pause.
		"the failures are short": func(r *Records, record *Record) {
			r.Report(record, resultWith("b"))
			r.SetRollout(rolledOut, plan.Rollout{Latest: "b", Current: "a"})
			r.Report(record, resultWith("b", v1alpha1.ReasonApplyFailed))
			r.Report(record, resultWith("b"))
		},
	}
	for name, resume := range tests {
		t.Run(name, func(t *testing.T) {
			g, records, rollout := NewWithT(t), recordsAt(time.Now()), plan.Rollout{Latest: "b", Current: "a"}
			record := records.Begin(namespaceWithUID("ns"))
			g.Expect(records.SetRollout(rolledOut, rollout)).To(BeTrue())
			records.Report(record, resultWith("b", v1alpha1.ReasonApplyFailed))
			g.Expect(records.Rollout(rolledOut).HasFailurePause()).To(BeTrue())
			g.Expect(records.SetRollout(rolledOut, rollout)).To(BeFalse())

			resume(records, record)
			g.Expect(records.Rollout(rolledOut).HasFailurePause()).To(BeFalse())
			g.Expect(records.SetRollout(rolledOut, rollout)).To(BeTrue())
			g.Expect(records.SetRollout(rolledOut, rollout)).To(BeFalse())
			records.Report(records.Begin(namespaceWithUID("other")), resultWith("c", v1alpha1.ReasonApplyFailed))
			g.Expect(records.SetRollout(rolledOut, plan.Rollout{Latest: "c", Current: "a"})).To(BeTrue())
			g.Expect(records.Rollout(rolledOut).HasFailurePause()).To(BeTrue(), "a failure before the rollout is known")
			records.retainRollouts(nil)
			g.Expect(records.Rollout(rolledOut)).To(BeZero())
		})
	}
}

func TestFailingCanaries(t *testing.T) {
	g, records, rollout := NewWithT(t), recordsAt(time.Now()), plan.Rollout{Latest: "b", Current: "a"}
	records.SetRollout(rolledOut, rollout)
	canary, other := resultWith("b", v1alpha1.ReasonApplyFailed), resultWith("b", v1alpha1.ReasonApplyFailed)
	canary.Templates[0].IsCanary = true
	record := records.Begin(namespaceWithUID("canary"))
	records.Report(record, canary)
	records.Report(records.Begin(namespaceWithUID("other")), other)
	unsynced := resultWith("b", v1alpha1.ReasonWatchNotSynced)
	unsynced.Templates[0].IsCanary = true
	records.Report(records.Begin(namespaceWithUID("unsynced")), unsynced)
	for range 2 {
		g.Expect(records.Rollout(rolledOut)).To(And(HaveField("Failing", 3), HaveField("FailingCanaries", 1)))
		// Otherwise, each failure in a canary would cause a pass over all Namespaces.
		rollout.CanariesUpdated.Time = rollout.CanariesUpdated.Add(time.Hour)
		g.Expect(records.SetRollout(rolledOut, rollout)).To(BeFalse())
	}
	records.Report(record, resultWith("b"))
	g.Expect(records.Rollout(rolledOut)).To(And(HaveField("Failing", 2), HaveField("FailingCanaries", 0)))
}

// The cache does not know the labels of partial Namespaces.
func TestPartialNamespaces(t *testing.T) {
	g, records := NewWithT(t), recordsAt(time.Now())
	namespace := namespaceWithUID("ns")
	partial := namespace.DeepCopy()
	partial.Annotations = map[string]string{v1alpha1.Prefix + "/digest": "x"}
	g.Expect(nscache.IsPartial(partial)).To(BeTrue())
	current := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{UID: rolledOut, Generation: 1}}
	current.Spec.Rollout.CanarySelector = &v1alpha1.NamespaceSelector{MatchLabels: map[string]v1alpha1.LabelValue{"tier": "dev"}}
	records.SetRollout(rolledOut, plan.Rollout{Latest: "b", Current: "a"})
	record := records.Begin(namespace)
	g.Expect(records.MayBeCanary(current, namespace)).To(BeFalse())
	g.Expect(records.MayBeCanary(current, partial)).To(BeTrue(), "before the first pass")
	for _, isCanary := range []bool{false, true} {
		records.Report(record, plan.Result{Templates: []plan.Outcome{{UID: rolledOut, Generation: 1, IsCanary: isCanary}}})
		g.Expect(records.MayBeCanary(current, partial)).To(Equal(isCanary))
	}
	g.Expect(records.IsBlocked(rolledOut, partial)).To(BeFalse())
	records.Report(record, plan.Result{Deselected: []types.UID{rolledOut}})
	g.Expect(records.IsBlocked(rolledOut, partial)).To(BeTrue())
	current.Generation++
	g.Expect(records.MayBeCanary(current, partial)).To(BeTrue(), "before the first pass with another selector")
}
