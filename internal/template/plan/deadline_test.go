// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

func TestAwait(t *testing.T) {
	three := ptr.To[int32](3)
	const templates, whole = v1alpha1.TemplatesInitializer, 4 * time.Second
	ago := func(name string, d time.Duration) func(time.Time) string {
		return func(now time.Time) string { return initialization.FormatTurnStart(name, now.Add(-d)) }
	}
	tests := map[string]struct {
		// elapsed is the time since the first pass.
		elapsed time.Duration
		// recorded is the start of the turn that the Namespace records.
		recorded      func(now time.Time) string
		limit         *int32
		policy        v1alpha1.FailurePolicy
		wait          v1alpha1.TemplateWaitPolicy
		isInitialized bool
		isEffective   bool
		isUnconfirmed bool
		isWaiting     bool
		isTimedOut    bool
		isRefused     bool
		// mustRecord is true if the Namespace must record the start of the turn.
		mustRecord bool
		retry      time.Duration
	}{
		"effective":                         {isEffective: true, limit: three, mustRecord: true},
		"not effective":                     {isWaiting: true, retry: effectiveRetry},
		"not effective, waitPolicy Applied": {wait: v1alpha1.WaitForApplied},
		"not effective, initialized":        {isInitialized: true, limit: three},
		"waiting for a second":              {elapsed: time.Second, isWaiting: true, retry: time.Second / 2},
		"waiting for an hour":               {elapsed: time.Hour, isWaiting: true, retry: maxEffectiveRetry},
		"shortly before the deadline":       {elapsed: whole - 100*time.Millisecond, limit: three, isWaiting: true, mustRecord: true, retry: 100 * time.Millisecond},
		"at the deadline":                   {elapsed: whole, limit: three, isWaiting: true, isRefused: true, mustRecord: true, retry: effectiveRetry},
		"at the deadline, unknown policy":   {elapsed: whole, limit: three, policy: "x", isWaiting: true, mustRecord: true, retry: effectiveRetry},
		"at the deadline, Ignore":           {elapsed: whole, limit: three, policy: v1alpha1.FailurePolicyIgnore, isTimedOut: true, mustRecord: true},
		"after a restart":                   {recorded: ago(templates, whole+time.Second), limit: three, isWaiting: true, isRefused: true, retry: effectiveRetry},
		"after a restart, Ignore":           {recorded: ago(templates, whole+time.Second), limit: three, policy: v1alpha1.FailurePolicyIgnore, isTimedOut: true},
		"after a restart, in time":          {recorded: ago(templates, time.Second), limit: three, isWaiting: true, retry: effectiveRetry},
		"the turn of another initializer":   {recorded: ago("a.example.com", time.Hour), limit: three, isWaiting: true, mustRecord: true, retry: effectiveRetry},
		"a recorded time in the future":     {recorded: ago(templates, -time.Hour), limit: three, isWaiting: true, mustRecord: true, retry: effectiveRetry},
		"recorded later than here":          {recorded: ago(templates, time.Second), elapsed: time.Hour, limit: three, isWaiting: true, retry: 3 * time.Second},
		"any text":                          {recorded: func(time.Time) string { return templates + " 0" }, limit: three, isWaiting: true, mustRecord: true, retry: effectiveRetry},
		"at the deadline, not confirmed":    {elapsed: whole, limit: three, isUnconfirmed: true, isWaiting: true, mustRecord: true, retry: UnconfirmedRetry},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g, now := NewWithT(t), time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
			namespace := wrappers.MakeNamespace("ns").Annotation(v1alpha1.AnnotationPendingInitializers, templates).Obj()
			if test.recorded != nil {
				namespace.Annotations[v1alpha1.AnnotationTurnStartedAt] = test.recorded(now)
			}
			tmpl := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
			tmpl.Spec.Initialization = v1alpha1.TemplateInitialization{
				WaitPolicy: test.wait, EffectiveTimeoutSeconds: test.limit,
				EffectiveTimeoutPolicy: cmp.Or(test.policy, v1alpha1.FailurePolicyFail),
			}
			p := NewPass(&Memory{FirstPass: now.Add(-test.elapsed), FirstTurn: now.Add(-test.elapsed)}, namespace, nil, now)
			p.IsInitializing = !test.isInitialized
			p.Begin([]*v1alpha1.NamespaceTemplate{{}, tmpl}, time.Hour)
			selected := p.Add(tmpl)
			if p.MustAwait(tmpl) && !test.isEffective {
				p.Await(selected, &Object{Name: "quota"}, template.Problemf(v1alpha1.ReasonQuotaNotCounted, "x"), func() error {
					if test.isUnconfirmed {
						return ErrUnconfirmed
					}
					return nil
				})
			}
			result := p.Conclude(nil, nil, 0, now)
			outcome := result.Templates[0]
			g.Expect(outcome.Waiting).To(HaveLen(map[bool]int{true: 1}[test.isWaiting]))
			g.Expect(outcome.TimedOut).To(HaveLen(map[bool]int{true: 1}[test.isTimedOut]))
			if p.IsInitializing {
				g.Expect(result.RetryAfter).To(Equal(test.retry))
			}
			g.Expect(result.Blocking() != nil).To(Equal(test.isWaiting))
			start := time.Time{}
			if test.mustRecord {
				start = now.Add(-test.elapsed)
			}
			g.Expect(result.TurnStart).To(Equal(start))
			if !test.isRefused {
				g.Expect(result.Refusal).To(BeNil())
				return
			}
			g.Expect(result.Refusal).To(HaveField("Reason", metav1.StatusReasonTimeout))
			g.Expect(result.Refusal.Message).To(And(ContainSubstring(`"team"`), ContainSubstring(`"quota"`), ContainSubstring("3s")))
		})
	}
}

// A Namespace fails if the same failure lasts and waiting cannot help, but is never initialized without the object.
func TestExpire(t *testing.T) {
	const limit = 3 * time.Second
	known := func(object, reason string, since time.Duration) map[template.Problem]time.Duration {
		return map[template.Problem]time.Duration{{Template: "team", Object: object, Reason: reason}: since}
	}
	for name, test := range map[string]struct {
		reason, message string
		// failures are since when the Namespace has failures.
		failures      map[template.Problem]time.Duration
		policy        v1alpha1.FailureTimeoutPolicy
		isInitialized bool
		isUnconfirmed bool
		isRefused     bool
		isForgotten   bool
		retry         time.Duration
	}{
		"new":             {retry: limit},
		"another object":  {failures: known("other", v1alpha1.ReasonForbidden, limit), retry: limit},
		"another reason":  {failures: known("binding", v1alpha1.ReasonInvalidObject, limit), retry: limit},
		"shortly before":  {failures: known("binding", v1alpha1.ReasonForbidden, limit-time.Second), retry: time.Second},
		"at the deadline": {failures: known("binding", v1alpha1.ReasonForbidden, limit), isRefused: true},
		"another message": {failures: known("binding", v1alpha1.ReasonForbidden, limit), message: "y", isRefused: true},
		"an expression": {
			reason: v1alpha1.ReasonExpressionFailed, failures: known("binding", v1alpha1.ReasonExpressionFailed, limit), isRefused: true,
		},
		"Retry": {
			failures: known("binding", v1alpha1.ReasonForbidden, limit), policy: v1alpha1.FailureTimeoutRetry, isForgotten: true,
		},
		"unknown policy": {failures: known("binding", v1alpha1.ReasonForbidden, limit), policy: "x", isForgotten: true},
		"waiting can help": {
			reason: v1alpha1.ReasonApplyFailed, failures: known("binding", v1alpha1.ReasonApplyFailed, limit), isForgotten: true,
		},
		"waiting can help now": {
			message: "exceeded quota: team", failures: known("binding", v1alpha1.ReasonForbidden, limit), isForgotten: true,
		},
		"initialized":   {failures: known("binding", v1alpha1.ReasonForbidden, limit), isInitialized: true, isForgotten: true},
		"not confirmed": {failures: known("binding", v1alpha1.ReasonForbidden, limit), isUnconfirmed: true, retry: UnconfirmedRetry},
	} {
		t.Run(name, func(t *testing.T) {
			g, now := NewWithT(t), time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
			namespace := wrappers.MakeNamespace("ns").
				Annotation(v1alpha1.AnnotationPendingInitializers, v1alpha1.TemplatesInitializer).Obj()
			tmpl := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
			tmpl.Spec.Initialization.FailureTimeoutSeconds = int32(limit.Seconds())
			tmpl.Spec.Initialization.FailureTimeoutPolicy = cmp.Or(test.policy, v1alpha1.FailureTimeoutFail)
			memory := &Memory{Failures: failures{}}
			for found, since := range test.failures {
				memory.Failures[found] = now.Add(-since)
			}
			p := NewPass(memory, namespace, nil, now)
			p.IsInitializing = !test.isInitialized
			selected := p.Add(tmpl)
			selected.AddProblem("other", template.Problemf(v1alpha1.ReasonKindNotFound, "x"))
			reason := cmp.Or(test.reason, v1alpha1.ReasonForbidden)
			selected.AddProblem("binding", template.Problemf(reason, "%s", cmp.Or(test.message, "x")))
			p.Expire(selected, func(found template.Problem) error {
				g.Expect(found.Object).To(Equal("binding"))
				if test.isUnconfirmed {
					return ErrUnconfirmed
				}
				return nil
			})
			result := p.Conclude(nil, nil, 0, now)
			g.Expect(result.Blocking()).NotTo(BeNil(), "the namespace is not initialized without the object")
			g.Expect(result.RetryAfter).To(Equal(test.retry))
			key := template.Problem{Template: "team", Object: "binding", Reason: reason}
			if test.isForgotten {
				g.Expect(memory.Failures).To(BeEmpty())
			} else {
				g.Expect(memory.Failures).To(Equal(failures{key: now.Add(-test.failures[key])}))
			}
			if !test.isRefused {
				g.Expect(result.Refusal).To(BeNil())
				return
			}
			g.Expect(result.Refusal).To(HaveField("Reason", metav1.StatusReasonTimeout))
			g.Expect(result.Refusal.Message).To(And(ContainSubstring(`"team"`), ContainSubstring(`"binding"`), ContainSubstring("3s")))
		})
	}
}
