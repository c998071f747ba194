// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/denial"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

// Outcome is the outcome of a pass over one Namespace.
type Outcome struct {
	// State is what the Namespace contains now.
	State template.Record
	// Templates are the outcomes of the applicable templates, sorted by name.
	Templates []TemplateOutcome
	// Kept are objects that are no longer recorded and that the operator has not created.
	Kept []template.Problem
	// Late are the names of the templates that select the Namespace since its labels have changed, but are not applied.
	Late []string
	// Deselected are the templates that the Namespace records although they no longer apply.
	Deselected []types.UID
	// Refusal is the result with which the initialization of the Namespace must fail; nil if it must not.
	Refusal *metav1.Status
	// TurnStart is when the turn of the initializer started; zero if the Namespace records it, or if no deadline counts
	// from it.
	TurnStart time.Time
	// Elapsed is the time since the first pass over a new Namespace.
	Elapsed time.Duration
	// RetryAfter is the time until the next pass; 0 if a watch event triggers it.
	RetryAfter time.Duration
	// Writes are the objects that were written.
	Writes []Write
	// Namespace is the Namespace after the operator has changed its metadata; the processed one if it has not.
	Namespace *corev1.Namespace
}

// Write is a write of an object of a template.
type Write struct {
	Template string
	Action   Action
}

// TemplateOutcome is the outcome of a pass for one template.
type TemplateOutcome struct {
	Template string
	UID      types.UID
	// Generation is the generation of the template.
	Generation int64
	// IsInitializing is true if the Namespace is still Initializing after the pass.
	IsInitializing bool
	// IsCanary is true if the Namespace is updated first.
	IsCanary bool
	// Revision is the revision that the Namespace should contain now.
	Revision string
	// Problems are why the Namespace does not contain all objects.
	Problems []template.Problem
	// Waiting are objects that exist but are not effective. A new Namespace is not initialized before.
	Waiting []template.Problem
	// TimedOut are objects that are not effective at the deadline of the template, whose effectiveTimeoutPolicy is Ignore.
	TimedOut []template.Problem
}

// HasFailed reports whether the Namespace does not contain all objects.
func (r Outcome) HasFailed() bool {
	return slices.ContainsFunc(r.Templates, func(outcome TemplateOutcome) bool {
		return template.IsIncomplete(outcome.Problems)
	})
}

// WaitsFor returns the first problem that prevents the initialization of a new Namespace from completing, or nil.
func (r Outcome) WaitsFor() *template.Problem {
	for _, result := range r.Templates {
		for _, found := range slices.Concat(result.Problems, result.Waiting) {
			if !found.LeavesObject() {
				return &found
			}
		}
	}
	return nil
}

// isUnsynced reports whether a watch has not listed all objects yet.
func (o TemplateOutcome) isUnsynced() bool {
	return slices.ContainsFunc(o.Problems, func(found template.Problem) bool {
		return found.Reason == v1alpha1.ReasonWatchNotSynced
	})
}

// NotRecorded adds a problem to each template whose state the Namespace could not record, for example because its
// users leave no space for the annotation. The Namespace then does not count as updated.
func (r *Outcome) NotRecorded(namespace *corev1.Namespace, err error) {
	recorded, _ := template.ParseRecord(namespace)
	r.Kept = nil
	for i := range r.Templates {
		outcome := &r.Templates[i]
		// The initialization of a new Namespace cannot be completed, or reported, without a write.
		if !outcome.IsInitializing && recorded[outcome.Template].Equal(r.State[outcome.Template]) {
			continue
		}
		outcome.Problems = append(outcome.Problems, template.Problem{
			Template: outcome.Template, Reason: v1alpha1.ReasonNotRecorded,
			Message: denial.Message(err, template.MaxFailureMessage),
		})
	}
}

const (
	// MaxFailures is the number of failures in the status of a template.
	MaxFailures = 10
	// maxTracked is the number of problems that are kept and recorded as Events for each Namespace and template.
	maxTracked = 10
)

// Tracked returns the outcomes with the problems that are kept: the first ones, among which is the one that decides how
// the Namespace is counted.
func Tracked(outcomes []TemplateOutcome) []TemplateOutcome {
	kept := slices.Clone(outcomes)
	for i := range kept {
		problems := kept[i].Problems
		if len(problems) <= maxTracked {
			continue
		}
		kept[i].Problems = slices.Clone(problems[:maxTracked])
		decisive := decisiveProblem(problems)
		if decisive < 0 { // A rollout does not wait for an incomplete Namespace.
			decisive = slices.IndexFunc(problems, func(problem template.Problem) bool { return !problem.LeavesObject() })
		}
		if decisive >= maxTracked {
			kept[i].Problems[maxTracked-1] = problems[decisive]
		}
	}
	return kept
}

// decisiveProblem returns the index of the problem that decides how the Namespace is counted, or -1.
func decisiveProblem(problems []template.Problem) int {
	if i := slices.IndexFunc(problems, func(p template.Problem) bool { return !p.IsLocal() }); i >= 0 {
		return i
	}
	return slices.IndexFunc(problems, func(p template.Problem) bool { return !p.IsConflict() })
}

// ProblemsOf returns the problems in outcomes that Events and the status of the template report.
func ProblemsOf(outcomes []TemplateOutcome) []template.Problem {
	var problems []template.Problem
	for _, outcome := range outcomes {
		problems = append(problems, outcome.reported()...)
	}
	return problems
}

// reported returns the problems, and what a new Namespace waits for if only a user can end that. Other waits end within
// seconds, and would change the status of the template with each new Namespace.
func (o TemplateOutcome) reported() []template.Problem {
	problems := slices.Clone(o.Problems)
	for _, found := range o.Waiting {
		if found.Reason == v1alpha1.ReasonRoleNotFound {
			problems = append(problems, found)
		}
	}
	return problems
}

// ChangedTemplates returns the templates whose status or rollout changes with the outcomes of a Namespace, sorted.
func ChangedTemplates(before, after []TemplateOutcome) []string {
	changed := map[string]bool{}
	for _, outcome := range slices.Concat(before, after) {
		if !slices.ContainsFunc(before, outcome.isSame) || !slices.ContainsFunc(after, outcome.isSame) {
			changed[outcome.Template] = true
		}
	}
	return slices.Sorted(maps.Keys(changed))
}

// isSame reports whether two outcomes are equal for the status and the rollout of a template.
func (o TemplateOutcome) isSame(other TemplateOutcome) bool {
	return o.Template == other.Template && o.Revision == other.Revision && o.Generation == other.Generation &&
		o.IsInitializing == other.IsInitializing && o.IsCanary == other.IsCanary &&
		slices.Equal(o.reported(), other.reported())
}

// Summary is the state of a template in all Namespaces.
type Summary struct {
	Counts v1alpha1.TemplateNamespaceCounts
	// Failing is the number of Namespaces with a problem that is not local.
	Failing int32
	// Failures are the first failures.
	Failures []v1alpha1.TemplateFailure
}

// Summarize returns the state of a template, whose outcomes are by Namespace.
func Summarize(outcomes map[string]TemplateOutcome, revision string) Summary {
	var summary Summary
	for _, namespace := range slices.Sorted(maps.Keys(outcomes)) {
		result := outcomes[namespace]
		summary.add(result, revision)
		for _, problem := range result.reported() {
			if len(summary.Failures) < MaxFailures {
				summary.Failures = append(summary.Failures, v1alpha1.TemplateFailure{
					Namespace: namespace, Object: problem.Object, Reason: problem.Reason,
					Message: problem.Message,
				})
			}
		}
	}
	slices.SortStableFunc(summary.Failures, func(a, b v1alpha1.TemplateFailure) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Object, b.Object))
	})
	return summary
}

// add counts a Namespace. One that is Initializing counts only if it fails: otherwise, each creation would make the
// template progress.
func (s *Summary) add(result TemplateOutcome, revision string) {
	counts := &s.Counts
	decisive := decisiveProblem(result.Problems)
	switch {
	case decisive >= 0:
		counts.Failed++
		if !result.Problems[decisive].IsLocal() {
			s.Failing++
		}
	case len(result.Problems) > 0:
		counts.Conflicted++
	case result.IsInitializing:
		return
	case result.Revision != revision:
		counts.Outdated++
	default:
		counts.Updated++
	}
	counts.Desired++
}
