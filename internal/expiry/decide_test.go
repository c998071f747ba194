// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
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

// report is what a decision writes: the condition, and the record of the warning, or "".
type report struct {
	condition corev1.NamespaceCondition
	record    string
}

// expiring returns the Expiring condition. Its transition time is given in hours after the creation
// of the namespace.
func expiring(status corev1.ConditionStatus, reason, message string, since float64) report {
	return report{condition: corev1.NamespaceCondition{
		Type: v1alpha1.ConditionExpiring, Status: status, Reason: reason, Message: message,
		LastTransitionTime: metav1.NewTime(hours(since)),
	}}
}

// recorded returns the Expiring condition with the record of a warning of an expiry.
func recorded(reason, message string, since float64, expires string) report {
	warning := expiring(corev1.ConditionTrue, reason, message, since)
	warning.record = hours(since).Format(time.RFC3339) + " " + expires
	return warning
}

func TestDecide(t *testing.T) {
	const (
		no   = corev1.ConditionFalse
		warn = corev1.EventTypeWarning
		at20 = "2026-03-01T20:00:00Z"

		suspended = "the namespace expires at 2026-03-01T20:00:00Z (nslifecycle.dev/ttl=8h), but will not be deleted: "
		kept      = "the namespace expired at 2026-03-01T20:00:00Z (nslifecycle.dev/ttl=8h), but is not deleted: "
	)
	protected := nsobject.ProtectionMessage(wrappers.MakeNamespace("shop").Label(v1alpha1.LabelDeletionProtection, "").Obj())
	write := func(wanted report, eventType string, requeueAfter time.Duration) Decision {
		decision := Decision{Condition: &wanted.condition, EventType: eventType, RequeueAfter: requeueAfter}
		if wanted.record != "" {
			decision.WarnedAt = &wanted.record
		}
		return decision
	}
	// withdraw is write for a namespace with a record, which is removed.
	withdraw := func(wanted report, eventType string, requeueAfter time.Duration) Decision {
		decision := write(wanted, eventType, requeueAfter)
		decision.WarnedAt = new(string)
		return decision
	}
	ttl := func() *wrappers.NamespaceWrapper { return makeNamespace().Annotation(v1alpha1.AnnotationTTL, "8h") }
	scheduled := expiring(no, v1alpha1.ReasonExpiryScheduled, onTime, 0)
	warned := recorded(v1alpha1.ReasonExpiresSoon, onTime, 7, at20)
	warnedLate := recorded(v1alpha1.ReasonExpiresSoon, tooLate, 11, at20)
	refused := recorded(v1alpha1.ReasonDeletionRejected, onTime+msgRefused+"no", 7, at20)
	// changed returns a warning with another record.
	changed := func(warning report, record string) *report {
		warning.record = record
		return &warning
	}

	tests := map[string]struct {
		namespace *wrappers.NamespaceWrapper
		have      *report
		// at is the time of the decision, in hours after the creation.
		at    float64
		input Input
		want  Decision
	}{
		"no annotations": {namespace: makeNamespace(), at: 9},
		"expiry removed": {
			namespace: makeNamespace(), have: &warned, at: 9,
			want: withdraw(expiring(no, v1alpha1.ReasonNoExpiry, msgNoExpiry, 9), "", 0),
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
			want: write(recorded(v1alpha1.ReasonExpiresSoon, onTime, 7.75, at20), warn, 15*time.Minute),
		},
		"warned":             {namespace: ttl(), have: &warned, at: 7.5, want: Decision{RequeueAfter: 30 * time.Minute}},
		"warned and expired": {namespace: ttl(), have: &warned, at: 8, want: Decision{ShouldDelete: true, RequeueAfter: minRetry}},
		"warned and expired long ago": {
			namespace: ttl(), have: &warned, at: 80, want: Decision{ShouldDelete: true, RequeueAfter: maxRetry},
		},
		"warned at the time of the expiry": {
			namespace: ttl(), have: new(recorded(v1alpha1.ReasonExpiresSoon, onTime, 8, at20)), at: 8,
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
			want: withdraw(expiring(no, v1alpha1.ReasonExpiryScheduled,
				warning("2026-03-02T12:00:00Z", v1alpha1.AnnotationTTL, "24h"), 9), "", maxRequeue),
		},
		"extended by less than one hour": {
			namespace: makeNamespace().Annotation(v1alpha1.AnnotationTTL, "8h30m"), have: &warned, at: 8,
			want: write(recorded(v1alpha1.ReasonExpiresSoon,
				warning("2026-03-01T20:30:00Z", v1alpha1.AnnotationTTL, "8h30m"), 8, "2026-03-01T20:30:00Z"), warn, 30*time.Minute),
		},
		"shortened to a past time after a warning": {
			namespace: makeNamespace().Annotation(v1alpha1.AnnotationTTL, "1h"), have: &warned, at: 7.5,
			want: write(recorded(v1alpha1.ReasonExpiresSoon,
				lateWarning("2026-03-01T20:30:00Z", v1alpha1.AnnotationTTL, "1h"), 7.5, "2026-03-01T13:00:00Z"), warn, time.Hour),
		},
		// The record of the warning decides, not the message.
		"warned with another message": {
			namespace: ttl(), have: new(recorded(v1alpha1.ReasonExpiresSoon, "soon", 7, at20)), at: 7.5,
			want: Decision{Condition: &warned.condition, RequeueAfter: 30 * time.Minute},
		},
		"warned with another message, expired": {
			namespace: ttl(), have: new(recorded(v1alpha1.ReasonExpiresSoon, "soon", 7, at20)), at: 8,
			want: Decision{ShouldDelete: true, RequeueAfter: minRetry},
		},
		"warned, then the same expiry in another annotation": {
			namespace: makeNamespace().Annotation(v1alpha1.AnnotationExpiresAt, "2026-03-01T21:00:00+01:00"), have: &warned, at: 7.5,
			want: Decision{RequeueAfter: 30 * time.Minute, Condition: new(expiring(corev1.ConditionTrue, v1alpha1.ReasonExpiresSoon,
				warning(at20, v1alpha1.AnnotationExpiresAt, "2026-03-01T21:00:00+01:00"), 7).condition)},
		},
		"no record":          {namespace: ttl(), have: changed(warned, ""), at: 11, want: write(warnedLate, warn, time.Hour)},
		"no record, refused": {namespace: ttl(), have: changed(refused, ""), at: 11, want: write(warnedLate, warn, time.Hour)},
		"a record without a condition": {
			namespace: ttl().Annotation(v1alpha1.AnnotationExpiryWarnedAt, warned.record), at: 11,
			want: write(warnedLate, warn, time.Hour),
		},
		"a record of a scheduled deletion": {
			namespace: ttl(), have: changed(scheduled, warned.record), at: 11, want: write(warnedLate, warn, time.Hour),
		},
		"warning of another expiry": {
			namespace: makeNamespace().Annotation(v1alpha1.AnnotationTTL, "7h"), have: &warned, at: 9,
			want: write(recorded(v1alpha1.ReasonExpiresSoon,
				lateWarning("2026-03-01T22:00:00Z", v1alpha1.AnnotationTTL, "7h"), 9, "2026-03-01T19:00:00Z"), warn, time.Hour),
		},

		"last valid year": {
			namespace: makeNamespace().Annotation(v1alpha1.AnnotationExpiresAt, "9999-12-31T23:59:59Z"), at: 9,
			want: write(expiring(no, v1alpha1.ReasonExpiryScheduled, warning("9999-12-31T23:59:59Z", v1alpha1.AnnotationExpiresAt, "9999-12-31T23:59:59Z"), 9), "", maxRequeue),
		},
		"first valid year": {
			namespace: makeNamespace().Annotation(v1alpha1.AnnotationExpiresAt, "0001-01-01T00:00:00Z"), at: 9,
			want: write(recorded(v1alpha1.ReasonExpiresSoon,
				lateWarning("2026-03-01T22:00:00Z", v1alpha1.AnnotationExpiresAt, "0001-01-01T00:00:00Z"), 9, "0001-01-01T00:00:00Z"), warn, time.Hour),
		},

		"invalid annotation": {
			namespace: makeNamespace().Annotation(v1alpha1.AnnotationTTL, "soon"), have: &warned, at: 9,
			want: withdraw(expiring(no, v1alpha1.ReasonInvalidExpiry, msgInvalid(errors.New(msgInvalidTTL("soon"))), 9), warn, 0),
		},
		"exempt namespace": {
			namespace: ttl(), have: &warned, at: 9, input: Input{IsExempt: true},
			want: withdraw(expiring(no, v1alpha1.ReasonNeverExpires, msgExempt, 9), warn, 0),
		},
		"policy missing": {
			namespace: ttl(), have: &warned, at: 9, input: Input{PolicyProblem: "every user may set it"},
			want: withdraw(expiring(no, v1alpha1.ReasonExpiryPolicyMissing,
				msgPolicyProblem("every user may set it"), 9), warn, 0),
		},
		"protected": {
			namespace: ttl().Label(v1alpha1.LabelDeletionProtection, "enabled"), have: &scheduled, at: 4,
			want: write(expiring(no, v1alpha1.ReasonDeletionProtected, suspended+protected, 0), "", 4*time.Hour),
		},
		"protected and expired": {
			namespace: ttl().Label(v1alpha1.LabelDeletionProtection, "enabled"), have: &warned, at: 9,
			want: withdraw(expiring(no, v1alpha1.ReasonDeletionProtected, kept+protected, 9), warn, 0),
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
			want: withdraw(expiring(no, v1alpha1.ReasonExpiryDryRun, kept+msgDryRun, 9), warn, 0),
		},

		"one hour before the expiry according to one of two clocks": {
			namespace: ttl(), have: &scheduled, at: 7, input: Input{Latest: hours(7.5)},
			want: write(recorded(v1alpha1.ReasonExpiresSoon, onTime, 7.5, at20), warn, time.Hour),
		},
		"expired according to one of two clocks": {
			namespace: ttl(), have: &scheduled, at: 7, input: Input{Latest: hours(11)},
			want: write(warnedLate, warn, 5*time.Hour),
		},
		"expired, clock corrected": {namespace: ttl(), have: &warnedLate, at: 11, want: Decision{RequeueAfter: time.Hour}},
		"refused":                  {namespace: ttl(), have: &refused, at: 8.05, want: Decision{ShouldDelete: true, RequeueAfter: 3 * time.Minute}},
		"refused, then extended": {
			namespace: makeNamespace().Annotation(v1alpha1.AnnotationTTL, "80h"), have: &refused, at: 9,
			want: withdraw(expiring(no, v1alpha1.ReasonExpiryScheduled,
				warning("2026-03-04T20:00:00Z", v1alpha1.AnnotationTTL, "80h"), 9), "", maxRequeue),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			if test.have != nil {
				test.namespace.Condition(test.have.condition)
				if test.have.record != "" {
					test.namespace.Annotation(v1alpha1.AnnotationExpiryWarnedAt, test.have.record)
				}
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
				if decision.WarnedAt != nil {
					metav1.SetMetaDataAnnotation(&namespace.ObjectMeta, v1alpha1.AnnotationExpiryWarnedAt, *decision.WarnedAt)
				}
				again := Decide(namespace, test.input)
				g.Expect(again.Condition).To(BeNil())
				g.Expect(again.ShouldDelete).To(BeFalse())
			}
		})
	}
}

// Only exactly what the operator writes for this expiry is a record.
func TestFindWarning(t *testing.T) {
	const at = "2026-03-01T19:00:00Z"
	for name, test := range map[string]struct {
		record string
		// expires is the default "2026-03-01T20:00:00Z" if it is empty.
		expires string
		want    bool
	}{
		"written by the operator":         {record: at + " 2026-03-01T20:00:00Z", want: true},
		"an expiry with an offset":        {record: at + " 2026-03-01T20:00:00Z", expires: "2026-03-01T21:00:00+01:00", want: true},
		"an expiry with a fraction":       {record: at + " 2026-03-01T20:00:00.5Z", expires: "2026-03-01T20:00:00.500Z", want: true},
		"without the fraction":            {record: at + " 2026-03-01T20:00:00Z", expires: "2026-03-01T20:00:00.5Z"},
		"missing":                         {},
		"another expiry":                  {record: at + " 2026-03-01T20:00:01Z"},
		"without an expiry":               {record: at},
		"without a time":                  {record: " 2026-03-01T20:00:00Z"},
		"an invalid time":                 {record: "2026-03-01T25:00:00Z 2026-03-01T20:00:00Z"},
		"a time with a fraction":          {record: "2026-03-01T19:00:00.5Z 2026-03-01T20:00:00Z"},
		"a time with an offset":           {record: "2026-03-01T20:00:00+01:00 2026-03-01T20:00:00Z"},
		"an expiry with another notation": {record: at + " 2026-03-01T21:00:00+01:00"},
		"two spaces":                      {record: at + "  2026-03-01T20:00:00Z"},
		"more text":                       {record: at + " 2026-03-01T20:00:00Z "},
		"long":                            {record: strings.Repeat(at, 10000) + " 2026-03-01T20:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			namespace := makeNamespace().
				Annotation(v1alpha1.AnnotationExpiresAt, cmp.Or(test.expires, "2026-03-01T20:00:00Z")).
				Annotation(v1alpha1.AnnotationExpiryWarnedAt, test.record).
				Condition(expiring(corev1.ConditionTrue, v1alpha1.ReasonExpiresSoon, "", 7).condition).Obj()
			expires, err := Parse(namespace)
			g.Expect(err).NotTo(HaveOccurred())
			warnedAt, isWarned := findWarning(namespace, expires)
			g.Expect(isWarned).To(Equal(test.want))
			if test.want {
				g.Expect(warnedAt).To(BeTemporally("==", hours(7)))
			}
			g.Expect(Decide(namespace, Input{Now: hours(20)}).ShouldDelete).To(Equal(test.want))
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
		Annotation(v1alpha1.AnnotationExpiryWarnedAt, "2026-03-01T19:00:00Z 2026-03-01T20:00:00Z").
		Condition(expiring(corev1.ConditionTrue, v1alpha1.ReasonExpiresSoon, onTime, 7).condition).Obj()
	refusal := errors.New("denied by a webhook" + strings.Repeat("!", 1000))
	decision := DecideRefused(namespace, refusal)
	g.Expect(decision.EventType).To(Equal(corev1.EventTypeWarning))
	g.Expect(decision.Condition.Status).To(Equal(corev1.ConditionTrue))
	g.Expect(decision.Condition.Reason).To(Equal(v1alpha1.ReasonDeletionRejected))
	g.Expect(decision.Condition.Message).To(HavePrefix(onTime + msgRefused + "denied by a webhook!"))
	g.Expect(len(decision.Condition.Message)).To(BeNumerically("<", 900))
	g.Expect(decision.Condition.LastTransitionTime.Time).To(Equal(hours(7)))

	namespace.Status.Conditions = []corev1.NamespaceCondition{*decision.Condition}
	g.Expect(DecideRefused(namespace, refusal).IsIdle()).To(BeTrue())
	g.Expect(DecideRefused(namespace, errors.New("another")).Condition.Message).To(Equal(onTime + msgRefused + "another"))
	g.Expect(DecideRefused(makeNamespace().Obj(), refusal).IsIdle()).To(BeTrue())
}
