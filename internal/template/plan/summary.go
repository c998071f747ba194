// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

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
