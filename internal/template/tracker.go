// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
)

const (
	// maxFailures is the number of failures in the status of a template.
	maxFailures = 10
	// maxFailureMessage is the maximum length of a message in the status in bytes.
	maxFailureMessage = 1024
	// maxTracked is the number of problems that are kept and recorded as Events for each Namespace and template.
	maxTracked = 10
)

// Tracked returns the outcomes with the problems that are kept: the first ones, among which is the one that decides how
// the Namespace is counted.
func Tracked(outcomes []Outcome) []Outcome {
	tracked := slices.Clone(outcomes)
	for i := range tracked {
		problems := tracked[i].Problems
		if len(problems) <= maxTracked {
			continue
		}
		failure := slices.IndexFunc(problems, func(p Problem) bool { return !p.IsConflict() })
		tracked[i].Problems = slices.Clone(problems[:maxTracked])
		if failure >= maxTracked {
			tracked[i].Problems[maxTracked-1] = problems[failure]
		}
	}
	return tracked
}

// Tracker counts Namespaces by template and state. It is rebuilt after a restart, by the first pass over
// all Namespaces.
type Tracker struct {
	mutex       sync.Mutex
	byNamespace map[string][]Outcome
	byTemplate  map[string]map[string]Outcome
	// processed has the Namespaces that were processed since the start, until all were.
	processed  map[string]bool
	isComplete bool
}

// Processed records that a Namespace was processed without a result.
func (t *Tracker) Processed(namespace string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.process(namespace)
}

func (t *Tracker) process(namespace string) {
	if t.isComplete {
		return
	}
	if t.processed == nil {
		t.processed = map[string]bool{}
	}
	t.processed[namespace] = true
}

// IsComplete reports whether all Namespaces were processed since the start.
func (t *Tracker) IsComplete(namespaces []corev1.Namespace) bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	isMissing := func(namespace corev1.Namespace) bool { return !t.processed[namespace.Name] }
	if !t.isComplete && !slices.ContainsFunc(namespaces, isMissing) {
		t.isComplete, t.processed = true, nil
	}
	return t.isComplete
}

// Set replaces the results of a Namespace, which must be bounded by Tracked. It returns the templates whose status has
// changed.
func (t *Tracker) Set(namespace string, results []Outcome) []string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.process(namespace)
	if t.byTemplate == nil {
		t.byTemplate = map[string]map[string]Outcome{}
		t.byNamespace = map[string][]Outcome{}
	}
	changed := map[string]bool{}
	for _, old := range t.byNamespace[namespace] {
		if !slices.ContainsFunc(results, func(r Outcome) bool { return r.Template == old.Template }) {
			delete(t.byTemplate[old.Template], namespace)
			if len(t.byTemplate[old.Template]) == 0 {
				delete(t.byTemplate, old.Template)
			}
			changed[old.Template] = true
		}
	}
	for _, result := range results {
		namespaces := t.byTemplate[result.Template]
		if namespaces == nil {
			namespaces = map[string]Outcome{}
			t.byTemplate[result.Template] = namespaces
		}
		if old, ok := namespaces[namespace]; !ok || !sameResult(old, result) {
			changed[result.Template] = true
		}
		namespaces[namespace] = result
	}
	if len(results) == 0 {
		delete(t.byNamespace, namespace)
	} else {
		t.byNamespace[namespace] = results
	}
	return slices.Sorted(maps.Keys(changed))
}

// sameResult reports whether two results are equal for the status of a template.
func sameResult(a, b Outcome) bool {
	return a.Revision == b.Revision && slices.Equal(a.Problems, b.Problems) &&
		len(a.Waiting) == len(b.Waiting)
}

// Problems returns the problems of a Namespace.
func (t *Tracker) Problems(namespace string) []Problem {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	var problems []Problem
	for _, result := range t.byNamespace[namespace] {
		problems = append(problems, result.Problems...)
	}
	return problems
}

// Status returns the counts and the first failures of a template.
func (t *Tracker) Status(
	template, revision string,
) (v1alpha1.TemplateNamespaceCounts, []v1alpha1.TemplateFailure) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	var counts v1alpha1.TemplateNamespaceCounts
	var failures []v1alpha1.TemplateFailure
	namespaces := t.byTemplate[template]
	for _, namespace := range slices.Sorted(maps.Keys(namespaces)) {
		result := namespaces[namespace]
		counts.Selected++
		switch {
		case slices.ContainsFunc(result.Problems, func(p Problem) bool { return !p.IsConflict() }):
			counts.Failed++
		case len(result.Problems) > 0:
			counts.Conflicted++
		case result.Revision != revision || len(result.Waiting) > 0:
			counts.Pending++
		default:
			counts.Ready++
		}
		for _, problem := range result.Problems {
			if len(failures) < maxFailures {
				failures = append(failures, v1alpha1.TemplateFailure{
					Namespace: namespace, Object: problem.Object, Reason: problem.Reason,
					Message: nscondition.Shorten(problem.Message, maxFailureMessage),
				})
			}
		}
	}
	slices.SortStableFunc(failures, func(a, b v1alpha1.TemplateFailure) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Object, b.Object))
	})
	return counts, failures
}
