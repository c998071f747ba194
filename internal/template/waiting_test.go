// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0
package template

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

func TestCheckReadiness(t *testing.T) {
	tests := map[string]struct {
		elapsed    time.Duration
		limit      *int32
		mode       v1alpha1.ReadinessMode
		isOpen     bool
		isCounted  bool
		isWaiting  bool
		isTimedOut bool
		retry      time.Duration
	}{
		"counted":                      {isCounted: true},
		"not counted":                  {isWaiting: true, retry: readinessRetry},
		"not counted, in mode Applied": {mode: v1alpha1.ReadinessApplied},
		"not counted, open":            {isOpen: true},
		"waiting for a second":         {elapsed: time.Second, isWaiting: true, retry: time.Second / 2},
		"waiting for an hour":          {elapsed: time.Hour, isWaiting: true, retry: maxReadinessRetry},
		"shortly before the limit":     {elapsed: 2900 * time.Millisecond, limit: ptr.To[int32](3), isWaiting: true, retry: 100 * time.Millisecond},
		"at the limit":                 {elapsed: 3 * time.Second, limit: ptr.To[int32](3), isTimedOut: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g, now := NewWithT(t), time.Now()
			clock := clocktesting.NewFakePassiveClock(now)
			p := &pass{
				Applier: &Applier{Clock: clock}, namespace: namespaceWith("1", ""), isInitializing: !test.isOpen,
				result: Result{Templates: []Outcome{{}}},
			}
			p.waiting.elapsed(namespaceUID, now)
			clock.SetTime(now.Add(test.elapsed))
			template := &v1alpha1.NamespaceTemplate{}
			template.Spec.Readiness = v1alpha1.TemplateReadiness{Mode: test.mode, TimeoutSeconds: test.limit}
			quota := desired{name: "quota", manifest: identityOf(v1alpha1.TemplateCopy{
				APIVersion: "v1", Kind: "ResourceQuota", Name: "quota",
			}, "ns")}
			p.checkReadiness(t.Context(), template, 0, quota, &observed{isCounted: test.isCounted})
			outcome := p.result.Templates[0]
			g.Expect(outcome.Waiting).To(HaveLen(map[bool]int{true: 1}[test.isWaiting]))
			g.Expect(outcome.TimedOut).To(HaveLen(map[bool]int{true: 1}[test.isTimedOut]))
			g.Expect(p.result.RetryAfter).To(Equal(test.retry))
			g.Expect(p.result.Blocking() != nil).To(Equal(test.isWaiting))
		})
	}
}
