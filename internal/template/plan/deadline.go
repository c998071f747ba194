// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

const (
	// effectiveRetry is the time until the operator checks again whether an object is effective, if no watch event
	// triggers it.
	effectiveRetry = 5 * time.Millisecond
	// maxEffectiveRetry limits this time, which grows while a Namespace waits.
	maxEffectiveRetry = 5 * time.Second
	// UnconfirmedRetry is the time until the next pass if the cache is stale.
	UnconfirmedRetry = time.Second
)

// MustAwait reports whether a Namespace waits until the objects of a template are effective.
func (p *Pass) MustAwait(tmpl *v1alpha1.NamespaceTemplate) bool {
	return p.IsInitializing && tmpl.Spec.Initialization.WaitPolicy != v1alpha1.WaitForApplied
}

func hasDeadline(tmpl *v1alpha1.NamespaceTemplate) bool {
	return tmpl.Spec.Initialization.TimeoutSeconds != nil
}

func (p *Pass) remaining(tmpl *v1alpha1.NamespaceTemplate) time.Duration {
	timeout := time.Duration(*tmpl.Spec.Initialization.TimeoutSeconds) * time.Second
	return initialization.RemainingSince(p.turnStart, timeout, p.Now)
}

// Await adds an object to the result that is not effective, as the error says. If the deadline has passed, the
// initialization fails after confirm has confirmed with the API server what the decision depends on.
func (p *Pass) Await(selected *Selected, object *Object, err error, confirm func() error) {
	tmpl, outcome := selected.Template, &selected.Outcome
	found := template.ToProblem(tmpl.Name, object.Name, err)
	delay := min(max(effectiveRetry, p.result.Elapsed/2), maxEffectiveRetry)
	if hasDeadline(tmpl) {
		delay = min(delay, max(p.remaining(tmpl), effectiveRetry))
	}
	// Another error does not say that the object is not effective.
	var expected *template.ReasonError
	switch hasExceeded := hasDeadline(tmpl) && p.remaining(tmpl) <= 0 && errors.As(err, &expected); {
	case !hasExceeded:
	case tmpl.Spec.Initialization.FailurePolicy == v1alpha1.FailurePolicyIgnore:
		outcome.TimedOut = append(outcome.TimedOut, found)
		return
	case confirm() == nil:
		p.refuse(tmpl, found)
	default:
		delay = UnconfirmedRetry
	}
	p.Retry(delay)
	outcome.Waiting = append(outcome.Waiting, found)
}

// Expire makes the initialization fail at the deadline of a template with failurePolicy Fail if one of its objects cannot
// be applied and waiting cannot help, after confirm has confirmed with the API server what the decision depends on.
// With Ignore, the Namespace continues to wait: it must not become initialized without the object.
func (p *Pass) Expire(selected *Selected, confirm func(template.Problem) error) {
	tmpl := selected.Template
	i := slices.IndexFunc(selected.Outcome.Problems, func(found template.Problem) bool {
		return template.Remedy(found.Reason) != ""
	})
	if i < 0 || !p.IsInitializing || !hasDeadline(tmpl) ||
		tmpl.Spec.Initialization.FailurePolicy == v1alpha1.FailurePolicyIgnore {
		return
	}
	found := selected.Outcome.Problems[i]
	switch remaining := p.remaining(tmpl); {
	case remaining > 0:
		p.Retry(max(remaining, effectiveRetry))
	case confirm(found) == nil:
		p.refuse(tmpl, found)
	default:
		p.Retry(UnconfirmedRetry)
	}
}

func (p *Pass) refuse(tmpl *v1alpha1.NamespaceTemplate, found template.Problem) {
	result := initialization.TimeoutResult(fmt.Sprintf("%s; this exceeds %ds, the timeout in NamespaceTemplate %q",
		found, *tmpl.Spec.Initialization.TimeoutSeconds, tmpl.Name))
	p.result.Refusal = &result
}
