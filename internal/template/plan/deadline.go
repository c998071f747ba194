// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
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
	// unconfirmedTimeout is how long concurrent changes can prevent the write or the deletion of an object until this is
	// a problem of the Namespace, for which a rollout does not wait.
	unconfirmedTimeout = 30 * time.Second
)

// MustAwait reports whether a Namespace waits until the objects of a template are effective.
func (p *Pass) MustAwait(tmpl *v1alpha1.NamespaceTemplate) bool {
	return p.IsInitializing && tmpl.Spec.Initialization.WaitPolicy != v1alpha1.WaitForApplied
}

func hasDeadline(tmpl *v1alpha1.NamespaceTemplate) bool {
	return tmpl.Spec.Initialization.EffectiveTimeoutSeconds != nil
}

func (p *Pass) remaining(tmpl *v1alpha1.NamespaceTemplate) time.Duration {
	timeout := time.Duration(*tmpl.Spec.Initialization.EffectiveTimeoutSeconds) * time.Second
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
	hasExceeded := hasDeadline(tmpl) && p.remaining(tmpl) <= 0 && errors.As(err, &expected)
	switch policy := tmpl.Spec.Initialization.EffectiveTimeoutPolicy; {
	case hasExceeded && policy == v1alpha1.FailurePolicyIgnore:
		outcome.TimedOut = append(outcome.TimedOut, found)
		return
	case !hasExceeded, policy != v1alpha1.FailurePolicyFail:
	case confirm() == nil:
		p.refuse(tmpl, found, *tmpl.Spec.Initialization.EffectiveTimeoutSeconds)
	default:
		delay = UnconfirmedRetry
	}
	p.Retry(delay)
	outcome.Waiting = append(outcome.Waiting, found)
}

// failures has since when a Namespace has failures that waiting cannot end. The problems have no messages. It is in
// memory: after a restart, the time starts again.
type failures map[template.Problem]time.Time

// Expire makes the initialization fail if an object of a template cannot be applied, waiting cannot help, and the
// failure has lasted for failureTimeoutSeconds, after confirm has confirmed with the API server what the decision
// depends on. Unless failureTimeoutPolicy is Fail, the Namespace continues to wait: it must not become initialized
// without the object.
func (p *Pass) Expire(selected *Selected, confirm func(template.Problem) error) {
	tmpl, settings := selected.Template, &selected.Template.Spec.Initialization
	if !p.IsInitializing || settings.FailureTimeoutPolicy != v1alpha1.FailureTimeoutFail {
		return
	}
	timeout := time.Duration(settings.FailureTimeoutSeconds) * time.Second
	for _, found := range selected.Outcome.Problems {
		if found.Remedy() == "" {
			continue
		}
		key := found
		key.Message = ""
		since, ok := p.Memory.Failures[key]
		if !ok {
			since = p.Now
		}
		p.failures[key] = since
		switch remaining := since.Add(timeout).Sub(p.Now); {
		case remaining > 0:
			p.Retry(remaining)
		case confirm(found) == nil:
			p.refuse(tmpl, found, settings.FailureTimeoutSeconds)
			return
		default:
			p.Retry(UnconfirmedRetry)
		}
	}
}

func (p *Pass) refuse(tmpl *v1alpha1.NamespaceTemplate, found template.Problem, seconds int32) {
	result := initialization.TimeoutResult(fmt.Sprintf("%s; this exceeds %ds, the timeout in NamespaceTemplate %q",
		found, seconds, tmpl.Name))
	p.result.Refusal = &result
}
