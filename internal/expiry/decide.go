// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
	"github.com/nslifecycle/nslifecycle/internal/protection"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

const (
	// Notice is how long before its deletion a Namespace is warned of.
	Notice = time.Hour

	// maxWait bounds how long a Namespace is not looked at: clocks are put right.
	maxWait = 12 * time.Hour

	// How long it is until a deletion that was refused is tried again.
	minRetry = 10 * time.Second
	maxRetry = 5 * time.Minute
)

// Circumstances are what decides beside the Namespace itself.
type Circumstances struct {
	Now time.Time
	// Latest is what time it may be at the latest, where that is later than Now. A warning
	// counts from there.
	Latest time.Time
	// IsExempt tells that the Namespace is one that the cluster or the operator cannot do
	// without.
	IsExempt bool
	// IsDryRun tells that nothing is to be deleted at all.
	IsDryRun bool
	// PolicyProblem says why nobody knows whether those who set the time had the right to,
	// or is empty.
	PolicyProblem string
}

// Decision is what is to be done about a Namespace.
type Decision struct {
	// Condition is to be written; nil where it is there already.
	Condition *corev1.NamespaceCondition
	// EventType is that of an Event to record once the condition is written, with its
	// reason and message; empty for none.
	EventType string
	// ShouldDelete tells that the Namespace is to be deleted now.
	ShouldDelete bool
	// Wait is how long it is until there is something to do that no change announces; 0 is
	// for ever.
	Wait time.Duration
}

// IsIdle tells whether there is nothing to do now.
func (d Decision) IsIdle() bool { return d.Condition == nil && !d.ShouldDelete }

// Decide says what is to be done about a Namespace. What it has been warned of stands in
// its conditions, so that this is known after a restart.
func Decide(namespace *corev1.Namespace, given Circumstances) Decision {
	if namespace.DeletionTimestamp != nil {
		return Decision{}
	}
	if !Has(namespace) {
		have := nscondition.Find(namespace, v1alpha1.ConditionExpiring)
		if have == nil {
			return Decision{}
		}
		return tell(namespace, given, v1alpha1.ReasonNoExpiry, "the namespace does not expire", "")
	}
	if given.IsExempt {
		return tell(namespace, given, v1alpha1.ReasonNeverExpires,
			"the cluster or nslifecycle cannot do without this namespace, so it is never deleted for having expired",
			corev1.EventTypeWarning)
	}
	expires, err := Read(namespace)
	if err != nil {
		return tell(namespace, given, v1alpha1.ReasonInvalidExpiry,
			err.Error()+"; until then the namespace is not deleted", corev1.EventTypeWarning)
	}
	if given.PolicyProblem != "" {
		return tell(namespace, given, v1alpha1.ReasonExpiryPolicyMissing,
			"the namespace is not deleted when it expires: "+given.PolicyProblem, corev1.EventTypeWarning)
	}
	if why := protection.WhyNotDelete(namespace); why != "" {
		return withhold(namespace, given, expires, v1alpha1.ReasonDeletionProtected, why)
	}
	if given.IsDryRun {
		return withhold(namespace, given, expires, v1alpha1.ReasonExpiryDryRun,
			"the operator runs with --expiry-dry-run")
	}
	return schedule(namespace, given, expires)
}

// withhold says why a Namespace is not deleted, once more when it would have been.
func withhold(
	namespace *corev1.Namespace, given Circumstances, expires Expiry, reason, why string,
) Decision {
	if left := expires.At.Sub(given.Now); left > 0 {
		decision := tell(namespace, given, reason,
			fmt.Sprintf("the namespace expires at %s (%s), and would not be deleted then: %s",
				show(expires.At), expires, why), "")
		decision.Wait = min(left, maxWait)
		return decision
	}
	return tell(namespace, given, reason, fmt.Sprintf("the namespace has expired at %s (%s), and is not deleted: %s",
		show(expires.At), expires, why), corev1.EventTypeWarning)
}

// schedule warns of the deletion of a Namespace, and has it deleted when it was warned of.
func schedule(namespace *corev1.Namespace, given Circumstances, expires Expiry) Decision {
	warned := findWarning(namespace, expires)
	if warned == nil {
		if left := expires.At.Add(-Notice).Sub(given.Now); left > 0 {
			decision := tell(namespace, given, v1alpha1.ReasonExpiryScheduled,
				warning(namespace.Name, expires, given.Now), "")
			decision.Wait = min(left, maxWait)
			return decision
		}
		at := given.Now
		if given.Latest.After(at) {
			at = given.Latest
		}
		at = at.Truncate(time.Second) // What a condition holds.
		return Decision{
			Condition: &corev1.NamespaceCondition{
				Type: v1alpha1.ConditionExpiring, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonExpiresSoon,
				Message: warning(namespace.Name, expires, at),
				// Also where it was True before: that was about another time.
				LastTransitionTime: metav1.NewTime(at),
			},
			EventType: corev1.EventTypeWarning,
			Wait:      max(time.Second, min(deletionTime(expires, at).Sub(given.Now), maxWait)),
		}
	}
	left := deletionTime(expires, warned.LastTransitionTime.Time).Sub(given.Now)
	if left > 0 {
		return Decision{Wait: min(left, maxWait)}
	}
	// Twice as long after each attempt.
	return Decision{ShouldDelete: true, Wait: min(max(-left, minRetry), maxRetry)}
}

// Refused is what to tell where the API server has refused to delete a Namespace that
// Decide would have deleted.
func Refused(namespace *corev1.Namespace, refusal error) Decision {
	have := nscondition.Find(namespace, v1alpha1.ConditionExpiring)
	if have == nil {
		return Decision{}
	}
	told := *have
	expires, err := Read(namespace)
	if err != nil {
		return Decision{}
	}
	told.Reason = v1alpha1.ReasonDeletionRefused
	told.Message = warning(namespace.Name, expires, have.LastTransitionTime.Time) +
		refusedInfix + nscondition.Shorten(refusal.Error(), shownRefusal)
	if *have == told {
		return Decision{}
	}
	return Decision{Condition: &told, EventType: corev1.EventTypeWarning}
}

const (
	// shownRefusal is the maximum length of a refusal in the message, in bytes.
	shownRefusal = 512

	refusedInfix = "; the API server has refused that, and it is tried again: "
)

// findWarning returns the condition by which a Namespace was warned of this very expiry, or
// nil if it was not.
func findWarning(namespace *corev1.Namespace, expires Expiry) *corev1.NamespaceCondition {
	have := nscondition.Find(namespace, v1alpha1.ConditionExpiring)
	if have == nil || have.Status != corev1.ConditionTrue {
		return nil
	}
	want := warning(namespace.Name, expires, have.LastTransitionTime.Time)
	if have.Message != want && !strings.HasPrefix(have.Message, want+refusedInfix) {
		return nil
	}
	return have
}

// deletionTime is when a Namespace is deleted that was warned of at some time.
func deletionTime(expires Expiry, warnedAt time.Time) time.Time {
	if warnedAt.After(expires.At) {
		return warnedAt.Add(Notice)
	}
	return expires.At
}

// warning says when a Namespace is deleted that is warned of at some time. It identifies
// the expiry: another time, or the same one said otherwise, is another text.
func warning(name string, expires Expiry, warnedAt time.Time) string {
	when := show(expires.At) + " (" + expires.String() + ")"
	if at := deletionTime(expires, warnedAt); !at.Equal(expires.At) {
		when = fmt.Sprintf("%s, since it had expired before the first warning (%s)", show(at), expires)
	}
	return fmt.Sprintf("the namespace is deleted at %s; to keep it, run: %s",
		when, shell.Command("kubectl annotate namespace %s %s-", name, expires.Key))
}

// tell is the decision that changes nothing but a condition, which is False. The Event is
// recorded with the change.
func tell(namespace *corev1.Namespace, given Circumstances, reason, message, eventType string) Decision {
	want := corev1.NamespaceCondition{
		Type: v1alpha1.ConditionExpiring, Status: corev1.ConditionFalse, Reason: reason,
		Message: nscondition.Message(message), LastTransitionTime: metav1.NewTime(given.Now.Truncate(time.Second)),
	}
	if have := nscondition.Find(namespace, v1alpha1.ConditionExpiring); have != nil && have.Status == want.Status {
		want.LastTransitionTime = have.LastTransitionTime
		if *have == want {
			return Decision{}
		}
	}
	return Decision{Condition: &want, EventType: eventType}
}

// String is the annotation.
func (e Expiry) String() string { return e.Key + "=" + e.Value }

func show(at time.Time) string { return at.UTC().Format(time.RFC3339) }
