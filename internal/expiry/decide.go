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

	// maxRequeue limits the time until the next reconciliation, because clocks can be adjusted.
	maxRequeue = 12 * time.Hour

	// minRetry and maxRetry limit the time until a refused deletion is retried.
	minRetry = 10 * time.Second
	maxRetry = 5 * time.Minute

	// maxShownRefusal is the maximum number of bytes of the API server's refusal in the message.
	maxShownRefusal = 512
)

// Input contains everything that a decision depends on, except the Namespace.
type Input struct {
	Now time.Time
	// Latest is the later of the current times of two clocks, or zero. The warning period does not
	// start before this time.
	Latest time.Time
	// IsExempt reports whether the cluster or the operator requires the Namespace.
	IsExempt bool
	// IsDryRun reports whether the operator only reports expired Namespaces.
	IsDryRun bool
	// PolicyProblem is the reason why the API server might not check who sets the time, or "".
	PolicyProblem string
}

// Decision describes what to do about a Namespace.
type Decision struct {
	// Condition is the condition to write, or nil if it is up to date.
	Condition *corev1.NamespaceCondition
	// EventType is the type of the Event to record after the condition is written. The Event has the
	// reason and the message of the condition. If EventType is empty, no Event is recorded.
	EventType string
	// ShouldDelete reports whether the Namespace must be deleted now.
	ShouldDelete bool
	// RequeueAfter is the time until the next decision if the Namespace does not change. If it is 0,
	// only a change of the Namespace can lead to another decision.
	RequeueAfter time.Duration
}

// IsIdle reports whether there is nothing to do now.
func (d Decision) IsIdle() bool { return d.Condition == nil && !d.ShouldDelete }

// Decide returns what to do about a Namespace. The conditions of the Namespace store the warning,
// so it survives a restart of the operator.
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
	expires, err := Parse(namespace)
	switch {
	case input.IsExempt:
		return notExpiring(namespace, input, v1alpha1.ReasonNeverExpires, msgExempt, corev1.EventTypeWarning)
	case err != nil:
		return notExpiring(namespace, input, v1alpha1.ReasonInvalidExpiry, msgInvalid(err), corev1.EventTypeWarning)
	case input.PolicyProblem != "":
		return notExpiring(namespace, input, v1alpha1.ReasonExpiryPolicyMissing, msgPolicyProblem(input.PolicyProblem),
			corev1.EventTypeWarning)
	case protection.IsProtected(namespace):
		return suspend(namespace, input, expires, v1alpha1.ReasonDeletionProtected, protection.Message(namespace))
	case input.IsDryRun:
		return suspend(namespace, input, expires, v1alpha1.ReasonExpiryDryRun, msgDryRun)
	}
	return schedule(namespace, input, expires)
}

// suspend returns the decision to report why a Namespace will not be deleted. After the Namespace
// has expired, the decision includes an Event.
func suspend(namespace *corev1.Namespace, input Input, expires Expiry, reason, message string) Decision {
	if left := expires.At.Sub(input.Now); left > 0 {
		decision := notExpiring(namespace, input, reason, msgWillNotDelete(expires, message), "")
		decision.RequeueAfter = min(left, maxRequeue)
		return decision
	}
	return notExpiring(namespace, input, reason, msgNotDeleted(expires, message), corev1.EventTypeWarning)
}

// schedule returns the decision to warn that a Namespace will be deleted, or to delete it at the
// end of the warning period.
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
	// The delay equals the time since the deletion was due, so it doubles with each attempt.
	return Decision{ShouldDelete: true, RequeueAfter: min(max(-left, minRetry), maxRetry)}
}

// warn returns the decision to set the condition to True and to record an Event.
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
			// Set the time even if the condition was True before, because it warned of another expiry.
			LastTransitionTime: metav1.NewTime(at),
		},
		EventType:    corev1.EventTypeWarning,
		RequeueAfter: max(time.Second, min(deletionTime(expires, at).Sub(input.Now), maxRequeue)),
	}
}

// DecideRefused returns what to do after the API server has refused to delete a Namespace.
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

// deletionTime returns when a Namespace must be deleted if the warning was given at warnedAt.
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
