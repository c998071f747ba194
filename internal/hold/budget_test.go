// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/admission/webhooks"
)

const controller = "system:serviceaccount:istio-system:istiod"

func createdBy(user string) func(*corev1.Namespace) {
	return func(n *corev1.Namespace) { n.Annotations[v1alpha1.AnnotationRequestedBy] = user }
}

func TestIsLikelyController(t *testing.T) {
	tests := map[string]struct {
		user      string
		namespace *corev1.Namespace
		want      bool
	}{
		"a ServiceAccount":                    {controller, makeNamespace(createdBy("alice")), true},
		"unknown creator":                     {controller, makeNamespace(), true},
		"the creator":                         {controller, makeNamespace(createdBy(controller)), false},
		"a ServiceAccount of the namespace":   {"system:serviceaccount:shop:deployer", makeNamespace(createdBy("alice")), false},
		"a person":                            {"bob", makeNamespace(createdBy("alice")), false},
		"a name that is not a ServiceAccount": {"system:serviceaccount:istiod", makeNamespace(), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(isLikelyController(test.user, test.namespace)).To(Equal(test.want))
		})
	}
}

func TestBudgets(t *testing.T) {
	g := NewWithT(t)
	now := time.Unix(1000, 0)
	limits := budgets{size: 10 * time.Second}
	remaining := func(after time.Duration) time.Duration { return limits.remaining("a", now.Add(after)) }
	g.Expect(remaining(0)).To(Equal(10 * time.Second))
	limits.spend("a", 4*time.Second, now)
	g.Expect(remaining(0)).To(Equal(6 * time.Second))
	g.Expect(remaining(20*time.Second)).To(Equal(8*time.Second), "a second in ten")
	g.Expect(remaining(time.Hour)).To(Equal(10*time.Second), "never more than the size")
	limits.spend("a", 7*time.Second, now)
	limits.spend("a", 7*time.Second, now)
	g.Expect(remaining(0)).To(BeZero())
	g.Expect(remaining(9*time.Second)).To(BeZero(), "less than a tenth of the size")
	g.Expect(remaining(10*time.Second)).To(Equal(time.Second), "never less than empty")
	g.Expect(limits.remaining("b", now)).To(Equal(10*time.Second), "a budget of another user")

	limits.spend("b", time.Second, now.Add(100*time.Second))
	g.Expect(limits.complete).To(And(HaveLen(1), HaveKey("b")), "complete budgets are forgotten")
}

// TestControllerWaits verifies how long writes of a user are held one after another, and whether the user is asked to
// send them again.
func TestControllerWaits(t *testing.T) {
	const duration = 10 * time.Second
	tests := map[string]struct {
		user string
		want []time.Duration
		// wantRetryAfter is the Retry-After in seconds of all responses.
		wantRetryAfter int32
		// overBudget is the number of writes that are rejected at once.
		overBudget int
	}{
		"a controller": {user: controller, want: []time.Duration{duration, 0, 0}, overBudget: 2},
		"the creator":  {user: "system:serviceaccount:ci:deployer", want: []time.Duration{duration, duration}, wantRetryAfter: 1},
		"a person":     {user: "bob", want: []time.Duration{duration, duration}, wantRetryAfter: 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				outcomes := &recorder{}
				holder := &Holder{
					config: Config{
						Namespaces: &memory{namespace: makeNamespace(createdBy("system:serviceaccount:ci:deployer"))},
						Duration:   duration, Metrics: outcomes,
					},
					slots: slots{limits: Limits{PerUser: 1, Total: 1}}, budgets: budgets{size: duration},
				}
				request := &webhooks.Request{Namespace: "shop", Operation: admissionv1.Create, Username: test.user}
				for _, want := range test.want {
					start := time.Now()
					response, err := holder.Handle(t.Context(), request)
					g.Expect(err).NotTo(HaveOccurred())
					g.Expect(time.Since(start)).To(Equal(want))
					g.Expect(response.Allowed).To(BeFalse())
					g.Expect(response.Result.Code).To(BeEquivalentTo(http.StatusTooManyRequests))
					g.Expect(response.Result.Details.RetryAfterSeconds).To(Equal(test.wantRetryAfter))
					g.Expect(response.Result.Message).To(ContainSubstring("is being initialized"))
				}
				g.Expect(outcomes.answered).To(HaveLen(test.overBudget))
				g.Expect(outcomes.answered).To(Or(BeEmpty(), HaveEach(OutcomeOverBudget)))
			})
		})
	}
}

// TestControllerRepeats verifies that the Retry-After of writes that are repeated counts: a controller with one worker
// waits for it after each of many short initializations.
func TestControllerRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		cache, outcomes := &memory{}, &recorder{}
		holder := &Holder{
			config: Config{Namespaces: cache, Duration: 10 * time.Second, Metrics: outcomes},
			slots:  slots{limits: Limits{PerUser: 1, Total: 1}}, budgets: budgets{size: 10 * time.Second},
		}
		request := &webhooks.Request{Namespace: "shop", Operation: admissionv1.Create, Username: controller}
		held := 0
		for ; len(outcomes.answered) == 0; held++ {
			cache.set(makeNamespace())
			time.AfterFunc(100*time.Millisecond, func() {
				cache.set(makeNamespace(initialized))
				holder.changes.notify("shop")
			})
			response, err := holder.Handle(t.Context(), request)
			g.Expect(err).NotTo(HaveOccurred())
			time.Sleep(time.Duration(response.Result.Details.RetryAfterSeconds) * time.Second)
		}
		g.Expect(held).To(Equal(11), "10 are held, and the next one is rejected at once")
		g.Expect(outcomes.answered).To(Equal([]Outcome{OutcomeOverBudget}))
	})
}
