// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

const (
	// SyncRetry is the time until the next pass if a watch has not listed all objects yet.
	SyncRetry = 50 * time.Millisecond
	// syncTimeout is the time after which this is a problem. Other templates are then applied.
	syncTimeout = 2 * time.Second
	// effectiveRetry is the time until the operator checks again whether an object is effective, if no watch event
	// triggers it.
	effectiveRetry = 5 * time.Millisecond
	// maxEffectiveRetry limits this time, which grows while a Namespace waits.
	maxEffectiveRetry = 5 * time.Second
	// unconfirmedRetry is the time until the next pass if the cache is stale.
	unconfirmedRetry = time.Second
	// unconfirmedTimeout is how long concurrent changes can prevent the write or the deletion of an object until this is
	// a problem of the Namespace, for which a rollout does not wait.
	unconfirmedTimeout = 30 * time.Second
)

// Quotas and RoleBindings are the kinds that a new Namespace waits for.
var (
	Quotas       = corev1.SchemeGroupVersion.WithKind("ResourceQuota")
	RoleBindings = rbacv1.SchemeGroupVersion.WithKind("RoleBinding").GroupKind()
)

func notCounted(quota *ObjectSnapshot) error {
	return template.Problemf(v1alpha1.ReasonQuotaNotCounted,
		"waiting until kube-controller-manager has counted ResourceQuota %q", quota.Manifest.GetName())
}

// mustWaitUntilEffective reports whether a Namespace waits until the objects of a template are effective.
func (p *Plan) mustWaitUntilEffective(tmpl *v1alpha1.NamespaceTemplate) bool {
	return p.isInitializing && tmpl.Spec.Initialization.WaitPolicy != v1alpha1.WaitForApplied
}

// untilDeadline returns the time until the deadline of a template, and false if it has none.
func (p *Plan) untilDeadline(tmpl *v1alpha1.NamespaceTemplate) (time.Duration, bool) {
	seconds := tmpl.Spec.Initialization.EffectiveTimeoutSeconds
	timeout := time.Duration(ptr.Deref(seconds, 0)) * time.Second
	return initialization.RemainingSince(p.turnStart, timeout, p.ServerNow), seconds != nil
}

// checkAllEffective plans the operations that find whether the objects of a template are effective: whether the
// permissions of RoleBindings are granted and, when the deadline of the template has passed, whether the API server
// confirms that a ResourceQuota is not counted.
func (p *Plan) checkAllEffective(t *templatePlan) {
	if !p.mustWaitUntilEffective(t.NamespaceTemplate) {
		return
	}
	remaining, hasDeadline := p.untilDeadline(t.NamespaceTemplate)
	mustConfirm := hasDeadline && remaining <= 0 &&
		t.Spec.Initialization.EffectiveTimeoutPolicy == v1alpha1.FailurePolicyFail
	for i := range t.objects {
		o := &t.objects[i]
		mayBeEffective := false
		switch o.Key().Kind {
		case Quotas.GroupKind():
			mayBeEffective = !mustConfirm || o.write == none && o.own.Current != nil && o.own.Current.IsCounted
		case RoleBindings:
			mayBeEffective = o.write == none && o.own.Current != nil && p.Memory.Granted.Has(o.own.Current.UID)
		default:
			continue
		}
		if o.err != nil || mayBeEffective {
			continue
		}
		operation := p.operation(t.NamespaceTemplate, Choice{})
		operation.Object = o.ObjectSnapshot
		operation = operation.checkEffective(mustConfirm)
		if o.write != none {
			operation.After = []int{o.write}
		}
		o.wait = p.add(operation)
	}
}

// waitFor adds an object that is not effective to the outcome, as the error says. If the deadline has passed, the
// initialization fails if the API server has confirmed what the decision depends on.
func (c *conclusion) waitFor(t *templatePlan, o *object, err error, isConfirmed bool) {
	found := template.ToProblem(t.Name, o.Name, err)
	delay := min(max(effectiveRetry, c.elapsed/2), maxEffectiveRetry)
	remaining, hasDeadline := c.untilDeadline(t.NamespaceTemplate)
	if hasDeadline {
		delay = min(delay, max(remaining, effectiveRetry))
	}
	// Another error does not say that the object is not effective.
	var expected *template.ReasonError
	hasExceeded := hasDeadline && remaining <= 0 && errors.As(err, &expected)
	switch policy := t.Spec.Initialization.EffectiveTimeoutPolicy; {
	case hasExceeded && policy == v1alpha1.FailurePolicyIgnore:
		t.outcome.TimedOut = append(t.outcome.TimedOut, found)
		return
	case !hasExceeded, policy != v1alpha1.FailurePolicyFail:
	case isConfirmed:
		c.refuse(t.NamespaceTemplate, found, *t.Spec.Initialization.EffectiveTimeoutSeconds)
	default:
		delay = unconfirmedRetry
	}
	c.retry(delay)
	t.outcome.Waiting = append(t.outcome.Waiting, found)
}

// failureTimeout returns how long a failure of a template lasts until the initialization fails. Unless
// failureTimeoutPolicy is Fail, it returns false, and the Namespace continues to wait: it must not become initialized
// without the object.
func (p *Plan) failureTimeout(tmpl *v1alpha1.NamespaceTemplate) (time.Duration, bool) {
	settings := &tmpl.Spec.Initialization
	return time.Duration(settings.FailureTimeoutSeconds) * time.Second,
		p.isInitializing && settings.FailureTimeoutPolicy == v1alpha1.FailureTimeoutFail
}

// confirmFailures makes the API server confirm what the end of the initialization depends on, if the template has had a
// failure for too long. The API server itself has refused an object; only the ServiceAccount is read from a cache.
func (p *Plan) confirmFailures(t *templatePlan) {
	timeout, mayFail := p.failureTimeout(t.NamespaceTemplate)
	if !mayFail {
		return
	}
	for found, since := range p.Memory.Failures {
		if found.Template != t.Name || since.Add(timeout).After(p.Now) {
			continue
		}
		if t.failureCheck == none {
			t.failureCheck = p.add(p.operation(t.NamespaceTemplate, Choice{}).sendConfirm(confirm))
		}
		if found.Reason == v1alpha1.ReasonServiceAccountNotFound {
			p.Operations[t.failureCheck].Request.MustFindAccount = true
		}
	}
}

// expire makes the initialization fail if an object of a template cannot be applied, waiting cannot help, the failure
// has lasted for failureTimeoutSeconds, and the API server has confirmed what the decision depends on.
func (c *conclusion) expire(t *templatePlan) {
	timeout, mayFail := c.failureTimeout(t.NamespaceTemplate)
	if !mayFail {
		return
	}
	for _, found := range t.outcome.Problems {
		if found.Remedy() == "" {
			continue
		}
		key := found
		key.Message = ""
		since := rememberSince(c.Memory.Failures, &c.failures, key, c.Now)
		check, isExecuted := c.result(t.failureCheck)
		switch remaining := since.Add(timeout).Sub(c.Now); {
		case remaining > 0:
			c.retry(remaining)
		case isExecuted && check.Err == nil:
			c.refuse(t.NamespaceTemplate, found, t.Spec.Initialization.FailureTimeoutSeconds)
			return
		default:
			c.retry(unconfirmedRetry)
		}
	}
}

func (c *conclusion) refuse(tmpl *v1alpha1.NamespaceTemplate, found template.Problem, seconds int32) {
	result := initialization.TimeoutResult(fmt.Sprintf("%s; this exceeds %ds, the timeout in NamespaceTemplate %q",
		found, seconds, tmpl.Name))
	c.outcome.Refusal = &result
}
