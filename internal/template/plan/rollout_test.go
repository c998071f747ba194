// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

func outcomeWith(revision string, reasons ...string) TemplateOutcome {
	outcome := TemplateOutcome{Revision: revision}
	for _, reason := range reasons {
		outcome.Problems = append(outcome.Problems, template.Problem{Reason: reason})
	}
	return outcome
}

// What the users of a Namespace can cause does not count for the rollout, but the Namespace keeps the revision.
func TestRolloutFails(t *testing.T) {
	tests := map[string]struct {
		outcome        TemplateOutcome
		fails, blocked bool
	}{
		"applied":                        {outcome: outcomeWith("b")},
		"failed":                         {outcome: outcomeWith("b", v1alpha1.ReasonApplyFailed), fails: true},
		"an earlier revision failed":     {outcome: outcomeWith("a", v1alpha1.ReasonApplyFailed)},
		"another template has an object": {outcome: outcomeWith("b", v1alpha1.ReasonClaimedByTemplate)},
		"failed and a conflict":          {outcome: outcomeWith("b", v1alpha1.ReasonConflict, v1alpha1.ReasonForbidden), fails: true},
		"a conflict":                     {outcome: outcomeWith("b", v1alpha1.ReasonConflict), blocked: true},
		"an object of a user":            {outcome: outcomeWith("b", v1alpha1.ReasonAlreadyExists), blocked: true},
		"a finalizer":                    {outcome: outcomeWith("b", v1alpha1.ReasonObjectTerminating), blocked: true},
		"an immutable field":             {outcome: outcomeWith("b", v1alpha1.ReasonFieldImmutable), blocked: true},
		"no space for the record":        {outcome: outcomeWith("b", v1alpha1.ReasonNotRecorded), blocked: true},
		"too large labels":               {outcome: outcomeWith("b", v1alpha1.ReasonInputTooLarge), blocked: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g, rollout := NewWithT(t), Rollout{Latest: "b", Current: "a", Settings: v1alpha1.TemplateRollout{Paused: true}}
			g.Expect(rollout.Fails(test.outcome)).To(Equal(test.fails))
			g.Expect(rollout.Ignores(test.outcome)).To(Equal(test.blocked))
			revision, _ := rollout.Revision(template.Entry{Revision: "a"}, test.outcome, false, false)
			g.Expect(revision).To(Equal(map[bool]string{true: "b", false: "a"}[test.fails || test.blocked]))
			rollout.Latest = "c"
			g.Expect(rollout.Fails(test.outcome) || rollout.Ignores(test.outcome)).To(BeFalse())
		})
	}
}

func TestRolloutRevision(t *testing.T) {
	paused := Rollout{Latest: "b", Current: "a", Settings: v1alpha1.TemplateRollout{Paused: true}}
	canaries := Rollout{Latest: "b", Current: "a", IsCanaryPhase: true}
	failing := Rollout{Latest: "b", Current: "a", Failing: 1}
	invalid, started, done := Rollout{Current: "a"}, Rollout{Latest: "b", Current: "a"}, Rollout{Latest: "a", Current: "a"}
	threshold := failing
	threshold.Settings.FailureThreshold = 2
	tests := map[string]struct {
		rollout                  Rollout
		isInitializing, isCanary bool
		// recorded is the revision that the Namespace contains.
		recorded  string
		last      TemplateOutcome
		want      string
		needsSlot bool
	}{
		"new":                      {rollout: started, isInitializing: true, want: "a"},
		"outdated":                 {rollout: started, recorded: "a", want: "b", needsSlot: true},
		"up to date":               {rollout: paused, recorded: "b", want: "b"},
		"paused":                   {rollout: paused, recorded: "a", want: "a"},
		"not a canary":             {rollout: canaries, recorded: "a", want: "a"},
		"a canary":                 {rollout: canaries, recorded: "a", isCanary: true, want: "b", needsSlot: true},
		"invalid revision":         {rollout: invalid, recorded: "a", want: "a"},
		"another namespace fails":  {rollout: failing, recorded: "a", want: "a"},
		"fewer than the threshold": {rollout: threshold, recorded: "a", want: "b", needsSlot: true},
		"this namespace fails": {
			rollout: failing, recorded: "a", last: outcomeWith("b", v1alpha1.ReasonApplyFailed), want: "b",
		},
		"without the template":                               {rollout: done, want: "a", needsSlot: true},
		"without the template while the rollout is paused":   {rollout: paused, want: "a", needsSlot: true},
		"without the template and not a canary":              {rollout: canaries, want: "a", needsSlot: true},
		"without the template while the revision is invalid": {rollout: invalid, want: "a", needsSlot: true},
		"without the template while no revision is valid":    {},
		"without a valid revision after a failure":           {last: outcomeWith("", v1alpha1.ReasonWatchNotSynced)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			revision, needsSlot := test.rollout.Revision(
				template.Entry{Revision: test.recorded}, test.last, test.isInitializing, test.isCanary)
			g.Expect(revision).To(Equal(test.want))
			g.Expect(needsSlot).To(Equal(test.needsSlot))
		})
	}
}

func TestAdvance(t *testing.T) {
	tests := map[string]struct {
		current            string
		outdated, canaries int
		want               Rollout
	}{
		"the first revision":  {outdated: 2, want: Rollout{Latest: "b", Current: "b"}},
		"canaries first":      {current: "a", outdated: 2, canaries: 1, want: Rollout{Latest: "b", Current: "a", IsCanaryPhase: true}},
		"after the canaries":  {current: "a", outdated: 2, want: Rollout{Latest: "b", Current: "a"}},
		"all are up to date":  {current: "a", want: Rollout{Latest: "b", Current: "b"}},
		"the first, canaries": {outdated: 1, canaries: 1, want: Rollout{Latest: "b", Current: "b"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			rollout := Rollout{Latest: "b", Current: test.current}
			failing := Rollout{Latest: "b", FailingCanaries: 1} // This matters only with minReadySeconds.
			rollout.Advance(failing, Progress{Outdated: test.outdated, Canaries: test.canaries}, time.Now())
			NewWithT(t).Expect(rollout).To(Equal(test.want))
		})
	}
}

func TestAdvanceWithMinReadySeconds(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	ago := func(elapsed time.Duration) Rollout {
		return Rollout{Latest: "b", CanariesUpdated: metav1.NewTime(now.Add(-elapsed))}
	}
	failing := ago(time.Hour)
	failing.FailingCanaries = 1
	other := ago(time.Hour)
	other.Latest, other.FailingCanaries = "a", 1
	outdated, done := Progress{Outdated: 2, IsComplete: true}, Progress{IsComplete: true}
	tests := map[string]struct {
		last     Rollout
		progress Progress
		isPaused bool
		// early is how long before the whole second the rollout is computed.
		early time.Duration
		// isWaiting is true if only canaries are updated: for the wait, if it is known.
		isWaiting bool
		wait      time.Duration
		updated   time.Time
		isCurrent bool
	}{
		"a canary is outdated": {
			progress: Progress{Outdated: 2, Canaries: 1, IsComplete: true}, isWaiting: true,
		},
		"all canaries, or none, are updated": {progress: outdated, isWaiting: true, wait: time.Minute, updated: now},
		"within a second": {
			progress: outdated, early: time.Second - 1, isWaiting: true, wait: time.Minute + time.Second - 1, updated: now,
		},
		"the time counts": {
			last: ago(time.Minute - 1), progress: outdated, isWaiting: true, wait: 1, updated: now.Add(1 - time.Minute),
		},
		"the time has passed": {last: ago(time.Minute), progress: outdated, updated: now.Add(-time.Minute)},
		"the time has passed while the rollout is paused": {
			last: ago(time.Minute), progress: outdated, isPaused: true, isWaiting: true, updated: now.Add(-time.Minute),
		},
		"the time has passed, failures are unknown": {
			last: ago(time.Minute), progress: Progress{Outdated: 2}, isWaiting: true, updated: now.Add(-time.Minute),
		},
		"the time has passed, and another canary is outdated": {
			last: ago(time.Minute), progress: Progress{Outdated: 2, Canaries: 1, IsComplete: true}, isWaiting: true,
			updated: now.Add(-time.Minute),
		},
		"another canary is outdated while the time counts": {
			last: ago(time.Second), progress: Progress{Outdated: 2, Canaries: 1, IsComplete: true}, isWaiting: true,
			wait: 59 * time.Second, updated: now.Add(-time.Second),
		},
		"a canary fails":       {last: failing, progress: outdated, isWaiting: true},
		"a canary has failed":  {last: Rollout{Latest: "b"}, progress: outdated, isWaiting: true, wait: time.Minute, updated: now},
		"the revision changes": {last: other, progress: outdated, isWaiting: true, wait: time.Minute, updated: now},
		"all namespaces are canaries": {
			last: ago(time.Minute - 1), progress: done, isWaiting: true, wait: 1, updated: now.Add(1 - time.Minute),
		},
		"all namespaces are canaries, and the time has passed": {last: ago(time.Minute), progress: done, isCurrent: true},
		"all namespaces are canaries while the rollout is paused": {
			last: ago(time.Minute), progress: done, isPaused: true, isWaiting: true, updated: now.Add(-time.Minute),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g, at := NewWithT(t), now.Add(-test.early)
			settings := v1alpha1.TemplateRollout{MinReadySeconds: 60, Paused: test.isPaused}
			rollout := Rollout{Latest: "b", Current: "a", Settings: settings}
			rollout.Advance(test.last, test.progress, at)
			if end := rollout.CanaryWaitEnd(at); test.wait > 0 {
				g.Expect(end.Sub(at)).To(Equal(test.wait))
			} else {
				g.Expect(end).To(BeZero())
			}
			want := Rollout{
				Latest: "b", Current: "a", Settings: settings, IsCanaryPhase: test.isWaiting, CanariesUpdated: metav1.NewTime(test.updated),
			}
			if test.isCurrent {
				want.Current = "b"
			}
			g.Expect(rollout).To(Equal(want))
		})
	}
}
