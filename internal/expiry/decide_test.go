// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/protection"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

var (
	// onTime is the warning for a namespace with a TTL of eight hours, if it is given before the
	// expiry.
	onTime = warning("2026-03-01T20:00:00Z", v1alpha1.AnnotationTTL, "8h")
	// tooLate is the warning for the same namespace, if it is given three hours after the expiry.
	tooLate = lateWarning("2026-03-02T00:00:00Z", v1alpha1.AnnotationTTL, "8h")
)

func warning(at, key, value string) string {
	return fmt.Sprintf("the namespace will be deleted at %s (%s=%s); to keep it, run: kubectl annotate namespace shop %s-",
		at, key, value, key)
}

// lateWarning returns the message of a warning that is given after the expiry.
func lateWarning(at, key, value string) string {
	return fmt.Sprintf("the namespace has expired (%s=%s) and will be deleted at %s; "+
		"to keep it, run: kubectl annotate namespace shop %s-", key, value, at, key)
}

func hours(hours float64) time.Time { return created.Add(time.Duration(hours * float64(time.Hour))) }

// expiring returns the Expiring condition. Its transition time is given in hours after the creation
// of the namespace.
func expiring(status corev1.ConditionStatus, reason, message string, since float64) corev1.NamespaceCondition {
	return corev1.NamespaceCondition{
		Type: v1alpha1.ConditionExpiring, Status: status, Reason: reason, Message: message,
		LastTransitionTime: metav1.NewTime(hours(since)),
	}
}

func TestDecide(t *testing.T) {
	const (
		yes, no = corev1.ConditionTrue, corev1.ConditionFalse
		warn    = corev1.EventTypeWarning

		suspended = "the namespace expires at 2026-03-01T20:00:00Z (nslifecycle.dev/ttl=8h), but will not be deleted: "
		kept      = "the namespace expired at 2026-03-01T20:00:00Z (nslifecycle.dev/ttl=8h), but is not deleted: "
	)
	protected := protection.Message(wrappers.MakeNamespace("shop").Label(v1alpha1.LabelDeletionProtection, "").Obj())
	write := func(condition corev1.NamespaceCondition, eventType string, requeueAfter time.Duration) Decision {
		return Decision{Condition: &condition, EventType: eventType, RequeueAfter: requeueAfter}
	}
	ttl := func() *wrappers.NamespaceWrapper { return makeNamespace().Annotation(v1alpha1.AnnotationTTL, "8h") }
	scheduled := expiring(no, v1alpha1.ReasonExpiryScheduled, onTime, 0)
	warned := expiring(yes, v1alpha1.ReasonExpiresSoon, onTime, 7)
	warnedLate := expiring(yes, v1alpha1.ReasonExpiresSoon, tooLate, 11)
	refused := expiring(yes, v1alpha1.ReasonDeletionRefused, onTime+msgRefused+"no", 7)

	tests := map[string]struct {
		namespace *wrappers.NamespaceWrapper
		have      *corev1.NamespaceCondition
		// at is the time of the decision, in hours after the creation.
		at    float64
		input Input
		want  Decision
	}{
		"no annotations": {namespace: makeNamespace(), at: 9},
		"expiry removed": {
			namespace: makeNamespace(), have: &warned, at: 9,
			want: write(expiring(no, v1alpha1.ReasonNoExpiry, msgNoExpiry, 9), "", 0),
		},
		"expiry removed, condition up to date": {
			namespace: makeNamespace(), at: 9,
			have: new(expiring(no, v1alpha1.ReasonNoExpiry, msgNoExpiry, 3)),
		},
		"terminating": {namespace: ttl().Terminating(hours(7)), have: &warned, at: 9},

		"new namespace":                        {namespace: ttl(), at: 0, want: write(scheduled, "", 7*time.Hour)},
		"already scheduled":                    {namespace: ttl(), have: &scheduled, at: 4, want: Decision{RequeueAfter: 3 * time.Hour}},
		"more than one hour before the expiry": {namespace: ttl(), have: &scheduled, at: 6.5, want: Decision{RequeueAfter: 30 * time.Minute}},
		"one hour before the expiry":           {namespace: ttl(), have: &scheduled, at: 7, want: write(warned, warn, time.Hour)},
		"new namespace less than one hour before the expiry": {
			namespace: ttl(), at: 7.75,
			want: write(expiring(yes, v1alpha1.ReasonExpiresSoon, onTime, 7.75), warn, 15*time.Minute),
		},
		"warned":             {namespace: ttl(), have: &warned, at: 7.5, want: Decision{RequeueAfter: 30 * time.Minute}},
		"warned and expired": {namespace: ttl(), have: &warned, at: 8, want: Decision{ShouldDelete: true, RequeueAfter: minRetry}},
		"warned and expired long ago": {
			namespace: ttl(), have: &warned, at: 80, want: Decision{ShouldDelete: true, RequeueAfter: maxRetry},
		},
		"warned at the time of the expiry": {
			namespace: ttl(), have: new(expiring(yes, v1alpha1.ReasonExpiresSoon, onTime, 8)), at: 8,
			want: Decision{ShouldDelete: true, RequeueAfter: minRetry},
		},

		"expired without a warning": {namespace: ttl(), at: 11, want: write(warnedLate, warn, time.Hour)},
		"scheduled and expired without a warning": {
			namespace: ttl(), have: &scheduled, at: 11, want: write(warnedLate, warn, time.Hour),
		},
		"warned after the expiry":               {namespace: ttl(), have: &warnedLate, at: 11.5, want: Decision{RequeueAfter: 30 * time.Minute}},
		"warned after the expiry, one hour ago": {namespace: ttl(), have: &warnedLate, at: 12, want: Decision{ShouldDelete: true, RequeueAfter: minRetry}},

		"extended": {
			namespace: makeNamespace().Annotation(v1alpha1.AnnotationTTL, "24h"), have: &warned, at: 9,
			want: write(expiring(no, v1alpha1.ReasonExpiryScheduled,
				warning("2026-03-02T12:00:00Z", v1alpha1.AnnotationTTL, "24h"), 9), "", maxRequeue),
		},
		"extended by less than one hour": {
			namespace: makeNamespace().Annotation(v1alpha1.AnnotationTTL, "8h30m"), have: &warned, at: 8,
			want: write(expiring(yes, v1alpha1.ReasonExpiresSoon,
				warning("2026-03-01T20:30:00Z", v1alpha1.AnnotationTTL, "8h30m"), 8), warn, 30*time.Minute),
		},
		"shortened to a past time after a warning": {
			namespace: makeNamespace().Annotation(v1alpha1.AnnotationTTL, "1h"), have: &warned, at: 7.5,
			want: write(expiring(yes, v1alpha1.ReasonExpiresSoon, lateWarning("2026-03-01T20:30:00Z", v1alpha1.AnnotationTTL, "1h"), 7.5), warn, time.Hour),
		},
		"condition with an unknown message": {
			namespace: ttl(), have: new(expiring(yes, v1alpha1.ReasonExpiresSoon, "soon", 1)), at: 11,
			want: write(warnedLate, warn, time.Hour),
		},
		"warning of another expiry": {
			namespace: makeNamespace().Annotation(v1alpha1.AnnotationTTL, "7h"), have: &warned, at: 9,
			want: write(expiring(yes, v1alpha1.ReasonExpiresSoon, lateWarning("2026-03-01T22:00:00Z", v1alpha1.AnnotationTTL, "7h"), 9), warn, time.Hour),
		},

		"last valid year": {
			namespace: makeNamespace().Annotation(v1alpha1.AnnotationExpiresAt, "9999-12-31T23:59:59Z"), at: 9,
			want: write(expiring(no, v1alpha1.ReasonExpiryScheduled, warning("9999-12-31T23:59:59Z", v1alpha1.AnnotationExpiresAt, "9999-12-31T23:59:59Z"), 9), "", maxRequeue),
		},
		"first valid year": {
			namespace: makeNamespace().Annotation(v1alpha1.AnnotationExpiresAt, "0001-01-01T00:00:00Z"), at: 9,
			want: write(expiring(yes, v1alpha1.ReasonExpiresSoon, lateWarning("2026-03-01T22:00:00Z", v1alpha1.AnnotationExpiresAt, "0001-01-01T00:00:00Z"), 9), warn, time.Hour),
		},

		"invalid annotation": {
			namespace: makeNamespace().Annotation(v1alpha1.AnnotationTTL, "soon"), have: &warned, at: 9,
			want: write(expiring(no, v1alpha1.ReasonInvalidExpiry, msgInvalid(errors.New(msgInvalidTTL("soon"))), 9), warn, 0),
		},
		"exempt namespace": {
			namespace: ttl(), have: &warned, at: 9, input: Input{IsExempt: true},
			want: write(expiring(no, v1alpha1.ReasonNeverExpires, msgExempt, 9), warn, 0),
		},
		"policy missing": {
			namespace: ttl(), have: &warned, at: 9, input: Input{PolicyProblem: "every user may set it"},
			want: write(expiring(no, v1alpha1.ReasonExpiryPolicyMissing,
				msgPolicyProblem("every user may set it"), 9), warn, 0),
		},
		"protected": {
			namespace: ttl().Label(v1alpha1.LabelDeletionProtection, "enabled"), have: &scheduled, at: 4,
			want: write(expiring(no, v1alpha1.ReasonDeletionProtected, suspended+protected, 0), "", 4*time.Hour),
		},
		"protected and expired": {
			namespace: ttl().Label(v1alpha1.LabelDeletionProtection, "enabled"), have: &warned, at: 9,
			want: write(expiring(no, v1alpha1.ReasonDeletionProtected, kept+protected, 9), warn, 0),
		},
		"protected, condition up to date": {
			namespace: ttl().Label(v1alpha1.LabelDeletionProtection, "enabled"), at: 10,
			have: new(expiring(no, v1alpha1.ReasonDeletionProtected, kept+protected, 9)),
		},
		"protection removed after the expiry": {
			namespace: ttl(), have: new(expiring(no, v1alpha1.ReasonDeletionProtected, kept+protected, 9)), at: 11,
			want: write(warnedLate, warn, time.Hour),
		},
		"dry run": {
			namespace: ttl(), at: 7.5, input: Input{IsDryRun: true},
			want: write(expiring(no, v1alpha1.ReasonExpiryDryRun, suspended+msgDryRun, 7.5), "", 30*time.Minute),
		},
		"dry run, expired": {
			namespace: ttl(), have: &warned, at: 9, input: Input{IsDryRun: true},
			want: write(expiring(no, v1alpha1.ReasonExpiryDryRun, kept+msgDryRun, 9), warn, 0),
		},

		"one hour before the expiry according to one of two clocks": {
			namespace: ttl(), have: &scheduled, at: 7, input: Input{Latest: hours(7.5)},
			want: write(expiring(yes, v1alpha1.ReasonExpiresSoon, onTime, 7.5), warn, time.Hour),
		},
		"expired according to one of two clocks": {
			namespace: ttl(), have: &scheduled, at: 7, input: Input{Latest: hours(11)},
			want: write(warnedLate, warn, 5*time.Hour),
		},
		"expired, clock corrected": {namespace: ttl(), have: &warnedLate, at: 11, want: Decision{RequeueAfter: time.Hour}},
		"refused":                  {namespace: ttl(), have: &refused, at: 8.05, want: Decision{ShouldDelete: true, RequeueAfter: 3 * time.Minute}},
		"refused, then extended": {
			namespace: makeNamespace().Annotation(v1alpha1.AnnotationTTL, "80h"), have: &refused, at: 9,
			want: write(expiring(no, v1alpha1.ReasonExpiryScheduled,
				warning("2026-03-04T20:00:00Z", v1alpha1.AnnotationTTL, "80h"), 9), "", maxRequeue),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			if test.have != nil {
				test.namespace.Condition(*test.have)
			}
			namespace := test.namespace.Obj()
			test.input.Now = hours(test.at)
			before := namespace.DeepCopy()
			decision := Decide(namespace, test.input)
			g.Expect(decision).To(Equal(test.want))
			g.Expect(namespace).To(Equal(before))
			g.Expect(decision.IsIdle()).To(Equal(test.want.Condition == nil && !test.want.ShouldDelete))

			// The next decision does not change the condition, so there is no second Event.
			if decision.Condition != nil {
				namespace.Status.Conditions = []corev1.NamespaceCondition{*decision.Condition}
				again := Decide(namespace, test.input)
				g.Expect(again.Condition).To(BeNil())
				g.Expect(again.ShouldDelete).To(BeFalse())
			}
		})
	}
}

// TestDecideTruncatesToSeconds verifies that the deletion never immediately follows the warning,
// even if the expiry contains a fraction of a second.
func TestDecideTruncatesToSeconds(t *testing.T) {
	g := NewWithT(t)
	namespace := makeNamespace().Annotation(v1alpha1.AnnotationExpiresAt, "2026-03-01T12:00:00.7Z").Obj()
	now := created.Add(900 * time.Millisecond)
	decision := Decide(namespace, Input{Now: now})
	g.Expect(decision.Condition.LastTransitionTime.Time).To(Equal(created))
	g.Expect(decision.RequeueAfter).To(BeNumerically(">", 0))
}

func TestDecideRefused(t *testing.T) {
	g := NewWithT(t)
	namespace := makeNamespace().Annotation(v1alpha1.AnnotationTTL, "8h").
		Condition(expiring(corev1.ConditionTrue, v1alpha1.ReasonExpiresSoon, onTime, 7)).Obj()
	refusal := errors.New("denied by a webhook" + strings.Repeat("!", 1000))
	decision := DecideRefused(namespace, refusal)
	g.Expect(decision.EventType).To(Equal(corev1.EventTypeWarning))
	g.Expect(decision.Condition.Status).To(Equal(corev1.ConditionTrue))
	g.Expect(decision.Condition.Reason).To(Equal(v1alpha1.ReasonDeletionRefused))
	g.Expect(decision.Condition.Message).To(HavePrefix(onTime + msgRefused + "denied by a webhook!"))
	g.Expect(len(decision.Condition.Message)).To(BeNumerically("<", 900))
	g.Expect(decision.Condition.LastTransitionTime.Time).To(Equal(hours(7)))

	namespace.Status.Conditions = []corev1.NamespaceCondition{*decision.Condition}
	g.Expect(DecideRefused(namespace, refusal).IsIdle()).To(BeTrue())
	g.Expect(DecideRefused(namespace, errors.New("another")).Condition.Message).To(Equal(onTime + msgRefused + "another"))
	g.Expect(DecideRefused(makeNamespace().Obj(), refusal).IsIdle()).To(BeTrue())
}
