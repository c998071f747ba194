// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"errors"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

const (
	toKeep = "; to keep it, run: kubectl annotate namespace shop nslifecycle.dev/ttl-"

	// Of a namespace that lives for eight hours.
	onTime = "the namespace is deleted at 2026-03-01T20:00:00Z (nslifecycle.dev/ttl=8h)" + toKeep
	// Of one that was warned of three hours after that.
	tooLate = "the namespace is deleted at 2026-03-02T00:00:00Z, since it had expired before the first warning " +
		"(nslifecycle.dev/ttl=8h)" + toKeep
)

func hours(hours float64) time.Time { return created.Add(time.Duration(hours * float64(time.Hour))) }

// expiring is the condition, since some hours after the creation.
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

		withheld = "the namespace expires at 2026-03-01T20:00:00Z (nslifecycle.dev/ttl=8h), and would not be deleted then: "
		kept     = "the namespace has expired at 2026-03-01T20:00:00Z (nslifecycle.dev/ttl=8h), and is not deleted: "
		dryRun   = "the operator runs with --expiry-dry-run"
		guarded  = "label nslifecycle.dev/deletion-protection protects it; to let it go, run: " +
			"kubectl label namespace shop nslifecycle.dev/deletion-protection-"
	)
	write := func(condition corev1.NamespaceCondition, eventType string, wait time.Duration) Decision {
		return Decision{Condition: &condition, EventType: eventType, Wait: wait}
	}
	ttl := func() *wrappers.NamespaceWrapper { return makeNamespace().Annotation(v1alpha1.AnnotationTTL, "8h") }
	scheduled := expiring(no, v1alpha1.ReasonExpiryScheduled, onTime, 0)
	warned := expiring(yes, v1alpha1.ReasonExpiresSoon, onTime, 7)
	warnedLate := expiring(yes, v1alpha1.ReasonExpiresSoon, tooLate, 11)
	refused := expiring(yes, v1alpha1.ReasonDeletionRefused, onTime+refusedInfix+"no", 7)

	tests := map[string]struct {
		namespace *wrappers.NamespaceWrapper
		have      *corev1.NamespaceCondition
		// at is when it is decided, in hours after the creation.
		at    float64
		given Circumstances
		want  Decision
	}{
		"no expiry": {namespace: makeNamespace(), at: 9},
		"no expiry any more": {
			namespace: makeNamespace(), have: &warned, at: 9,
			want: write(expiring(no, v1alpha1.ReasonNoExpiry, "the namespace does not expire", 9), "", 0),
		},
		"no expiry any more, which is said": {
			namespace: makeNamespace(), at: 9,
			have: new(expiring(no, v1alpha1.ReasonNoExpiry, "the namespace does not expire", 3)),
		},
		"being deleted": {namespace: ttl().Terminating(hours(7)), have: &warned, at: 9},

		"new":                   {namespace: ttl(), at: 0, want: write(scheduled, "", 7*time.Hour)},
		"known":                 {namespace: ttl(), have: &scheduled, at: 4, want: Decision{Wait: 3 * time.Hour}},
		"more than an hour off": {namespace: ttl(), have: &scheduled, at: 6.5, want: Decision{Wait: 30 * time.Minute}},
		"an hour off":           {namespace: ttl(), have: &scheduled, at: 7, want: write(warned, warn, time.Hour)},
		"less than an hour off": {
			namespace: ttl(), at: 7.75,
			want: write(expiring(yes, v1alpha1.ReasonExpiresSoon, onTime, 7.75), warn, 15*time.Minute),
		},
		"warned of":              {namespace: ttl(), have: &warned, at: 7.5, want: Decision{Wait: 30 * time.Minute}},
		"warned of, and expired": {namespace: ttl(), have: &warned, at: 8, want: Decision{ShouldDelete: true, Wait: minRetry}},
		"warned of, and expired long since, as after an outage": {
			namespace: ttl(), have: &warned, at: 80, want: Decision{ShouldDelete: true, Wait: maxRetry},
		},
		"warned of just in time": {
			namespace: ttl(), have: new(expiring(yes, v1alpha1.ReasonExpiresSoon, onTime, 8)), at: 8,
			want: Decision{ShouldDelete: true, Wait: minRetry},
		},

		"never warned of, and expired": {namespace: ttl(), at: 11, want: write(warnedLate, warn, time.Hour)},
		"scheduled, but not warned of in time": {
			namespace: ttl(), have: &scheduled, at: 11, want: write(warnedLate, warn, time.Hour),
		},
		"warned of too late":              {namespace: ttl(), have: &warnedLate, at: 11.5, want: Decision{Wait: 30 * time.Minute}},
		"warned of too late, an hour ago": {namespace: ttl(), have: &warnedLate, at: 12, want: Decision{ShouldDelete: true, Wait: minRetry}},

		"put off": {
			namespace: makeNamespace().Annotation(v1alpha1.AnnotationTTL, "24h"), have: &warned, at: 9,
			want: write(expiring(no, v1alpha1.ReasonExpiryScheduled,
				"the namespace is deleted at 2026-03-02T12:00:00Z (nslifecycle.dev/ttl=24h)"+toKeep, 9), "", maxWait),
		},
		"put off by less than an hour": {
			namespace: makeNamespace().Annotation(v1alpha1.AnnotationTTL, "8h30m"), have: &warned, at: 8,
			want: write(expiring(yes, v1alpha1.ReasonExpiresSoon,
				"the namespace is deleted at 2026-03-01T20:30:00Z (nslifecycle.dev/ttl=8h30m)"+toKeep, 8), warn, 30*time.Minute),
		},
		"brought forward into the past, after a warning": {
			namespace: makeNamespace().Annotation(v1alpha1.AnnotationTTL, "1h"), have: &warned, at: 7.5,
			want: write(expiring(yes, v1alpha1.ReasonExpiresSoon, "the namespace is deleted at 2026-03-01T20:30:00Z, "+
				"since it had expired before the first warning (nslifecycle.dev/ttl=1h)"+toKeep, 7.5), warn, time.Hour),
		},
		"a condition that somebody made up": {
			namespace: ttl(), have: new(expiring(yes, v1alpha1.ReasonExpiresSoon, "soon", 1)), at: 11,
			want: write(warnedLate, warn, time.Hour),
		},
		"of another time, though True": {
			namespace: makeNamespace().Annotation(v1alpha1.AnnotationTTL, "7h"), have: &warned, at: 9,
			want: write(expiring(yes, v1alpha1.ReasonExpiresSoon, "the namespace is deleted at 2026-03-01T22:00:00Z, "+
				"since it had expired before the first warning (nslifecycle.dev/ttl=7h)"+toKeep, 9), warn, time.Hour),
		},

		"a far year": {
			namespace: makeNamespace().Annotation(v1alpha1.AnnotationExpiresAt, "9999-12-31T23:59:59Z"), at: 9,
			want: write(expiring(no, v1alpha1.ReasonExpiryScheduled, "the namespace is deleted at 9999-12-31T23:59:59Z "+
				"(nslifecycle.dev/expires-at=9999-12-31T23:59:59Z); to keep it, run: "+
				"kubectl annotate namespace shop nslifecycle.dev/expires-at-", 9), "", maxWait),
		},
		"a year long past": {
			namespace: makeNamespace().Annotation(v1alpha1.AnnotationExpiresAt, "0001-01-01T00:00:00Z"), at: 9,
			want: write(expiring(yes, v1alpha1.ReasonExpiresSoon, "the namespace is deleted at 2026-03-01T22:00:00Z, since "+
				"it had expired before the first warning (nslifecycle.dev/expires-at=0001-01-01T00:00:00Z); to keep it, run: "+
				"kubectl annotate namespace shop nslifecycle.dev/expires-at-", 9), warn, time.Hour),
		},

		"invalid": {
			namespace: makeNamespace().Annotation(v1alpha1.AnnotationTTL, "soon"), have: &warned, at: 9,
			want: write(expiring(no, v1alpha1.ReasonInvalidExpiry, `annotation nslifecycle.dev/ttl is "soon" and not a time `+
				"above zero in days, hours, minutes and seconds, such as 7d or 1h30m; until then the namespace is not deleted", 9), warn, 0),
		},
		"exempt": {
			namespace: ttl(), have: &warned, at: 9, given: Circumstances{IsExempt: true},
			want: write(expiring(no, v1alpha1.ReasonNeverExpires, "the cluster or nslifecycle cannot do without this namespace, "+
				"so it is never deleted for having expired", 9), warn, 0),
		},
		"without the policy": {
			namespace: ttl(), have: &warned, at: 9, given: Circumstances{PolicyProblem: "anybody may set it"},
			want: write(expiring(no, v1alpha1.ReasonExpiryPolicyMissing,
				"the namespace is not deleted when it expires: anybody may set it", 9), warn, 0),
		},
		"protected": {
			namespace: ttl().Label(v1alpha1.LabelDeletionProtection, "enabled"), have: &scheduled, at: 4,
			want: write(expiring(no, v1alpha1.ReasonDeletionProtected, withheld+guarded, 0), "", 4*time.Hour),
		},
		"protected, and expired": {
			namespace: ttl().Label(v1alpha1.LabelDeletionProtection, "enabled"), have: &warned, at: 9,
			want: write(expiring(no, v1alpha1.ReasonDeletionProtected, kept+guarded, 9), warn, 0),
		},
		"protected, which is said": {
			namespace: ttl().Label(v1alpha1.LabelDeletionProtection, "enabled"), at: 10,
			have: new(expiring(no, v1alpha1.ReasonDeletionProtected, kept+guarded, 9)),
		},
		"not protected any more, and expired": {
			namespace: ttl(), have: new(expiring(no, v1alpha1.ReasonDeletionProtected, kept+guarded, 9)), at: 11,
			want: write(warnedLate, warn, time.Hour),
		},
		"a dry run": {
			namespace: ttl(), at: 7.5, given: Circumstances{IsDryRun: true},
			want: write(expiring(no, v1alpha1.ReasonExpiryDryRun, withheld+dryRun, 7.5), "", 30*time.Minute),
		},
		"a dry run, and expired": {
			namespace: ttl(), have: &warned, at: 9, given: Circumstances{IsDryRun: true},
			want: write(expiring(no, v1alpha1.ReasonExpiryDryRun, kept+dryRun, 9), warn, 0),
		},

		"an hour off, by one of two clocks": {
			namespace: ttl(), have: &scheduled, at: 7, given: Circumstances{Latest: hours(7.5)},
			want: write(expiring(yes, v1alpha1.ReasonExpiresSoon, onTime, 7.5), warn, time.Hour),
		},
		"expired, by one of two clocks": {
			namespace: ttl(), have: &scheduled, at: 7, given: Circumstances{Latest: hours(11)},
			want: write(warnedLate, warn, 5*time.Hour),
		},
		"expired, by the clock that has been put right": {namespace: ttl(), have: &warnedLate, at: 11, want: Decision{Wait: time.Hour}},
		"refused": {namespace: ttl(), have: &refused, at: 8.05, want: Decision{ShouldDelete: true, Wait: 3 * time.Minute}},
		"refused, and put off since": {
			namespace: makeNamespace().Annotation(v1alpha1.AnnotationTTL, "80h"), have: &refused, at: 9,
			want: write(expiring(no, v1alpha1.ReasonExpiryScheduled,
				"the namespace is deleted at 2026-03-04T20:00:00Z (nslifecycle.dev/ttl=80h)"+toKeep, 9), "", maxWait),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			if test.have != nil {
				test.namespace.Condition(*test.have)
			}
			namespace := test.namespace.Obj()
			test.given.Now = hours(test.at)
			before := namespace.DeepCopy()
			decision := Decide(namespace, test.given)
			g.Expect(decision).To(Equal(test.want))
			g.Expect(namespace).To(Equal(before))
			g.Expect(decision.IsIdle()).To(Equal(test.want.Condition == nil && !test.want.ShouldDelete))

			// What is written is not written again, and nobody is told twice.
			if decision.Condition != nil {
				namespace.Status.Conditions = []corev1.NamespaceCondition{*decision.Condition}
				again := Decide(namespace, test.given)
				g.Expect(again.Condition).To(BeNil())
				g.Expect(again.ShouldDelete).To(BeFalse())
			}
		})
	}
}

// What has just been warned of is not deleted at once, whatever the fraction of a second.
func TestDecideHoldsToWholeSeconds(t *testing.T) {
	g := NewWithT(t)
	namespace := makeNamespace().Annotation(v1alpha1.AnnotationExpiresAt, "2026-03-01T12:00:00.7Z").Obj()
	now := created.Add(900 * time.Millisecond)
	decision := Decide(namespace, Circumstances{Now: now})
	g.Expect(decision.Condition.LastTransitionTime.Time).To(Equal(created))
	g.Expect(decision.Wait).To(BeNumerically(">", 0))
}

func TestRefused(t *testing.T) {
	g := NewWithT(t)
	namespace := makeNamespace().Annotation(v1alpha1.AnnotationTTL, "8h").
		Condition(expiring(corev1.ConditionTrue, v1alpha1.ReasonExpiresSoon, onTime, 7)).Obj()
	refusal := errors.New("a webhook says no" + strings.Repeat("!", 1000))
	told := Refused(namespace, refusal)
	g.Expect(told.EventType).To(Equal(corev1.EventTypeWarning))
	g.Expect(told.Condition.Status).To(Equal(corev1.ConditionTrue))
	g.Expect(told.Condition.Reason).To(Equal(v1alpha1.ReasonDeletionRefused))
	g.Expect(told.Condition.Message).To(HavePrefix(onTime + "; the API server has refused that, and it is tried again: a webhook says no!"))
	g.Expect(len(told.Condition.Message)).To(BeNumerically("<", 900))
	g.Expect(told.Condition.LastTransitionTime.Time).To(Equal(hours(7)))

	namespace.Status.Conditions = []corev1.NamespaceCondition{*told.Condition}
	g.Expect(Refused(namespace, refusal).IsIdle()).To(BeTrue())
	g.Expect(Refused(namespace, errors.New("another")).Condition.Message).To(Equal(onTime + refusedInfix + "another"))
	g.Expect(Refused(makeNamespace().Obj(), refusal).IsIdle()).To(BeTrue())
}
