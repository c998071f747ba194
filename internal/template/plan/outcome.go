// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
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
	State template.State
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
	// Generation is that of the template.
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

// Blocking returns the first problem that prevents the initialization of a new Namespace from completing, or nil.
func (r Outcome) Blocking() *template.Problem {
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
	recorded, _ := template.ParseState(namespace)
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
