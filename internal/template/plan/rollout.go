// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

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
	Settings      v1alpha1.TemplateRollout
	// Failing is the number of Namespaces in which the latest revision fails.
	Failing int
}

// Advance makes the latest revision the current one if there was none before, or when all Namespaces contain it, and
// determines whether canaries are updated first. The numbers are those of the Namespaces, and of the canaries among
// them, that do not contain the latest revision yet.
func (r *Rollout) Advance(outdated, canaries int) {
	r.IsCanaryPhase = canaries > 0
	if r.Current == "" || outdated == 0 {
		r.Current = r.Latest
	}
}

// HasFailurePause reports whether the rollout is paused because of failures.
func (r Rollout) HasFailurePause() bool {
	return r.Failing >= int(max(r.Settings.FailureThreshold, 1))
}

// Fails reports whether the latest revision fails in a Namespace.
func (r Rollout) Fails(last Outcome) bool {
	return r.isIncomplete(last) &&
		slices.ContainsFunc(last.Problems, func(found template.Problem) bool { return !found.IsLocal() })
}

// IsBlocked reports whether a Namespace prevents itself that it gets the latest revision. It does not count for the
// rollout.
func (r Rollout) IsBlocked(last Outcome) bool { return r.isIncomplete(last) && !r.Fails(last) }

func (r Rollout) isIncomplete(last Outcome) bool {
	return r.Latest != "" && last.Revision == r.Latest && template.IsIncomplete(last.Problems)
}

// Revision returns the revision that a Namespace gets now, and whether it must wait for its turn. The revision is empty
// if the Namespace gets none.
func (r Rollout) Revision(
	recorded template.Entry, last Outcome, isInitializing, isCanary bool,
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
