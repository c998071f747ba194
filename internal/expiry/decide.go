// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
	"github.com/nslifecycle/nslifecycle/internal/protection"
)

const (
	// WarningPeriod is the time between the warning and the deletion of a Namespace.
	WarningPeriod = time.Hour

	// maxRequeue limits the time until the next reconciliation, because a clock may be adjusted.
	maxRequeue = 12 * time.Hour

	// The time until a refused deletion is retried.
	minRetry = 10 * time.Second
	maxRetry = 5 * time.Minute

	// maxShownRefusal is the maximum length of the API server's refusal in the message, in bytes.
	maxShownRefusal = 512
)

// Input contains everything that a decision depends on, except the Namespace.
type Input struct {
	Now time.Time
	// Latest is the later one of two clocks, or zero. The warning period starts at it.
	Latest time.Time
	// IsExempt reports that the cluster or the operator requires the Namespace.
	IsExempt bool
	// IsDryRun reports that the operator deletes no Namespace.
	IsDryRun bool
	// PolicyProblem is the reason why the API server may not check who sets the time, or "".
	PolicyProblem string
}

// Decision describes what to do about a Namespace.
type Decision struct {
	// Condition is the condition to write, or nil if it is up to date.
	Condition *corev1.NamespaceCondition
	// EventType is the type of the Event to record once the condition is written, with its reason
	// and message. If it is empty, there is no Event.
	EventType string
	// ShouldDelete reports that the Namespace must be deleted now.
	ShouldDelete bool
	// RequeueAfter is the time until the next decision if the Namespace does not change. 0 means
	// that only a change can lead to another decision.
	RequeueAfter time.Duration
}

// IsIdle reports whether there is nothing to do now.
func (d Decision) IsIdle() bool { return d.Condition == nil && !d.ShouldDelete }

// Decide returns what to do about a Namespace. The warning is stored in its conditions, so it survives
// a restart of the operator.
func Decide(namespace *corev1.Namespace, input Input) Decision {
	if namespace.DeletionTimestamp != nil {
		return Decision{}
	}
	if !IsSet(namespace) {
		if nscondition.Find(namespace, v1alpha1.ConditionExpiring) == nil {
			return Decision{}
		}
		return notExpiring(namespace, input, v1alpha1.ReasonNoExpiry, msgNoExpiry, "")
	}
	if input.IsExempt {
		return notExpiring(namespace, input, v1alpha1.ReasonNeverExpires, msgExempt, corev1.EventTypeWarning)
	}
	expires, err := Parse(namespace)
	if err != nil {
		return notExpiring(namespace, input, v1alpha1.ReasonInvalidExpiry, msgInvalid(err), corev1.EventTypeWarning)
	}
	if input.PolicyProblem != "" {
		return notExpiring(namespace, input, v1alpha1.ReasonExpiryPolicyMissing, msgPolicyProblem(input.PolicyProblem),
			corev1.EventTypeWarning)
	}
	if message := protection.Message(namespace); message != "" {
		return suspend(namespace, input, expires, v1alpha1.ReasonDeletionProtected, message)
	}
	if input.IsDryRun {
		return suspend(namespace, input, expires, v1alpha1.ReasonExpiryDryRun, msgDryRun)
	}
	return schedule(namespace, input, expires)
}

// suspend reports why a Namespace is not deleted, and records an Event when it expires.
func suspend(namespace *corev1.Namespace, input Input, expires Expiry, reason, message string) Decision {
	if left := expires.At.Sub(input.Now); left > 0 {
		decision := notExpiring(namespace, input, reason, msgWillNotDelete(expires, message), "")
		decision.RequeueAfter = min(left, maxRequeue)
		return decision
	}
	return notExpiring(namespace, input, reason, msgNotDeleted(expires, message), corev1.EventTypeWarning)
}

// schedule warns of the deletion of a Namespace, or deletes it at the end of the warning period.
func schedule(namespace *corev1.Namespace, input Input, expires Expiry) Decision {
	warned := findWarning(namespace, expires)
	if warned == nil {
		if left := expires.At.Add(-WarningPeriod).Sub(input.Now); left > 0 {
			decision := notExpiring(namespace, input, v1alpha1.ReasonExpiryScheduled,
				msgWarning(namespace.Name, expires, input.Now), "")
			decision.RequeueAfter = min(left, maxRequeue)
			return decision
		}
		return warn(namespace, input, expires)
	}
	left := deletionTime(expires, warned.LastTransitionTime.Time).Sub(input.Now)
	if left > 0 {
		return Decision{RequeueAfter: min(left, maxRequeue)}
	}
	// The delay is the time since the deletion was due, so it doubles with each attempt.
	return Decision{ShouldDelete: true, RequeueAfter: min(max(-left, minRetry), maxRetry)}
}

// warn sets the condition to True and records an Event.
func warn(namespace *corev1.Namespace, input Input, expires Expiry) Decision {
	at := input.Now
	if input.Latest.After(at) {
		at = input.Latest
	}
	at = at.Truncate(time.Second) // Conditions have a precision of one second.
	return Decision{
		Condition: &corev1.NamespaceCondition{
			Type: v1alpha1.ConditionExpiring, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonExpiresSoon,
			Message: msgWarning(namespace.Name, expires, at),
			// Set even if the condition was True before: that was the warning of another expiry.
			LastTransitionTime: metav1.NewTime(at),
		},
		EventType:    corev1.EventTypeWarning,
		RequeueAfter: max(time.Second, min(deletionTime(expires, at).Sub(input.Now), maxRequeue)),
	}
}

// DecideRefused returns what to do after the API server refused the deletion of a Namespace.
func DecideRefused(namespace *corev1.Namespace, refusal error) Decision {
	existing := nscondition.Find(namespace, v1alpha1.ConditionExpiring)
	if existing == nil {
		return Decision{}
	}
	expires, err := Parse(namespace)
	if err != nil {
		return Decision{}
	}
	wanted := *existing
	wanted.Reason = v1alpha1.ReasonDeletionRefused
	wanted.Message = msgWarning(namespace.Name, expires, existing.LastTransitionTime.Time) +
		msgRefused + nscondition.Shorten(refusal.Error(), maxShownRefusal)
	if *existing == wanted {
		return Decision{}
	}
	return Decision{Condition: &wanted, EventType: corev1.EventTypeWarning}
}

// findWarning returns the condition that warns of this expiry, or nil.
func findWarning(namespace *corev1.Namespace, expires Expiry) *corev1.NamespaceCondition {
	condition := nscondition.Find(namespace, v1alpha1.ConditionExpiring)
	if condition == nil || condition.Status != corev1.ConditionTrue {
		return nil
	}
	warning := msgWarning(namespace.Name, expires, condition.LastTransitionTime.Time)
	if condition.Message != warning && !strings.HasPrefix(condition.Message, warning+msgRefused) {
		return nil
	}
	return condition
}

// deletionTime returns when a Namespace is deleted, given the time of the warning.
func deletionTime(expires Expiry, warnedAt time.Time) time.Time {
	if warnedAt.After(expires.At) {
		return warnedAt.Add(WarningPeriod)
	}
	return expires.At
}

// notExpiring returns the decision to set the condition to False, and to record an Event if the
// condition changes and eventType is not empty.
func notExpiring(namespace *corev1.Namespace, input Input, reason, message, eventType string) Decision {
	wanted := corev1.NamespaceCondition{
		Type: v1alpha1.ConditionExpiring, Status: corev1.ConditionFalse, Reason: reason,
		Message: nscondition.Message(message),
	}
	existing := nscondition.Find(namespace, v1alpha1.ConditionExpiring)
	if !nscondition.Complete(existing, &wanted, metav1.NewTime(input.Now.Truncate(time.Second))) {
		return Decision{}
	}
	return Decision{Condition: &wanted, EventType: eventType}
}
