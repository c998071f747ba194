// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

// Rollout specifies which revision of a template each Namespace gets.
type Rollout struct {
	// Latest is the revision of the spec; empty if the spec is invalid.
	Latest string
	// Current is the revision that new Namespaces get; empty if there has never been a valid one.
	Current string
	// IsCanaryPhase is true while only the Namespaces that Settings.CanarySelector selects are updated.
	IsCanaryPhase bool
	// CanariesUpdated is when all canaries contained the latest revision, from which Settings.MinReadySeconds counts. It
	// is zero before, and while the revision fails in a canary.
	CanariesUpdated metav1.Time
	Settings        v1alpha1.TemplateRollout
	// Failing is the number of Namespaces in which the latest revision fails, and FailingCanaries the number of canaries
	// among them, see FailsInCanary.
	Failing, FailingCanaries int
}

// Progress is the progress of a rollout.
type Progress struct {
	// Outdated is the number of Namespaces that do not contain the latest revision yet, and Canaries the number of
	// canaries among them.
	Outdated, Canaries int
	// IsComplete is true if the outcomes include all Namespaces. Before, it is not known in which of them the revision
	// fails.
	IsComplete bool
}

// Advance makes the latest revision the current one if there was none before, or when all Namespaces contain it, and
// determines whether only canaries are updated. last is the result of the previous call.
func (r *Rollout) Advance(last Rollout, progress Progress, now time.Time) {
	r.IsCanaryPhase = progress.Canaries > 0
	if r.Settings.MinReadySeconds > 0 {
		r.waitAfterCanaries(last, progress, now)
	}
	if r.Current == "" || progress.Outdated == 0 && !r.IsCanaryPhase {
		r.Current, r.IsCanaryPhase, r.CanariesUpdated = r.Latest, false, metav1.Time{}
	}
}

// waitAfterCanaries extends the phase of the canaries until they have contained the latest revision for
// Settings.MinReadySeconds. A failure in a canary starts the time again.
func (r *Rollout) waitAfterCanaries(last Rollout, progress Progress, now time.Time) {
	if last.Latest != r.Latest {
		last = Rollout{}
	}
	switch {
	case last.FailingCanaries > 0:
	case !last.CanariesUpdated.IsZero():
		// A canary that is added later does not extend the time: users who create Namespaces could stop the rollout.
		r.CanariesUpdated = last.CanariesUpdated
	case !r.IsCanaryPhase:
		// The status has no fractions of seconds, and a restart must not shorten the time.
		r.CanariesUpdated = metav1.NewTime(now.Add(time.Second - 1).Truncate(time.Second))
	}
	// Also if all Namespaces are canaries, new ones do not get the revision while the rollout is paused.
	r.IsCanaryPhase = r.IsCanaryPhase || r.CanariesUpdated.IsZero() || !r.CanaryWaitEnd(now).IsZero() ||
		!progress.IsComplete || r.Settings.Paused
}

// CanaryWaitEnd returns when Settings.MinReadySeconds will have passed; zero if the time does not count, or has passed.
func (r Rollout) CanaryWaitEnd(now time.Time) time.Time {
	end := r.CanariesUpdated.Add(time.Duration(r.Settings.MinReadySeconds) * time.Second)
	if r.CanariesUpdated.IsZero() || !end.After(now) {
		return time.Time{}
	}
	return end
}

// HasFailurePause reports whether the rollout is paused because of failures.
func (r Rollout) HasFailurePause() bool {
	return r.Failing >= int(max(r.Settings.FailureThreshold, 1))
}

// Fails reports whether the latest revision fails in a Namespace.
func (r Rollout) Fails(last TemplateOutcome) bool {
	return r.isIncomplete(last) &&
		slices.ContainsFunc(last.Problems, func(found template.Problem) bool { return !found.IsLocal() })
}

// FailsInCanary reports whether the latest revision fails in a canary. A watch that has not listed all objects yet, for
// example after a restart, does not concern the revision, and must not start the time again.
func (r Rollout) FailsInCanary(last TemplateOutcome) bool {
	return last.IsCanary && r.isIncomplete(last) && slices.ContainsFunc(last.Problems, func(found template.Problem) bool {
		return !found.IsLocal() && found.Reason != v1alpha1.ReasonWatchNotSynced
	})
}

// Ignores reports whether a rollout does not wait for a Namespace, because the Namespace itself prevents that it gets
// the latest revision.
func (r Rollout) Ignores(last TemplateOutcome) bool { return r.isIncomplete(last) && !r.Fails(last) }

func (r Rollout) isIncomplete(last TemplateOutcome) bool {
	return r.Latest != "" && last.Revision == r.Latest && template.IsIncomplete(last.Problems)
}

// Revision returns the revision that a Namespace gets now, and whether it must wait for its turn. The revision is empty
// if the Namespace gets none.
func (r Rollout) Revision(
	recorded template.Entry, last TemplateOutcome, isInitializing, isCanary bool,
) (revision string, needsSlot bool) {
	switch {
	case isInitializing:
		return r.Current, false
	case r.isIncomplete(last):
		// The pause because of failures ends when the revision has been applied to such Namespaces.
		return r.Latest, false
	}
	has, next := recorded.Newest(), r.Latest
	mayUpdate := !r.Settings.Paused && !r.HasFailurePause() && (!r.IsCanaryPhase || isCanary)
	if next == "" || next != r.Current && !mayUpdate {
		// The latest revision is invalid or not proven.
		next = cmp.Or(has, r.Current)
	}
	return next, next != has
}

// IsCanary reports whether a Namespace is updated first.
func IsCanary(settings *v1alpha1.TemplateRollout, namespace *corev1.Namespace) bool {
	return settings.CanarySelector != nil && initialization.Selects(settings.CanarySelector, namespace.Labels)
}
