// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/printable"
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
	// WarnedAt is the value that v1alpha1.AnnotationExpiryWarnedAt gets in the same write; nil if it does not change.
	WarnedAt *string
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

// Decide returns what to do about a Namespace. The Namespace stores the warning, so it survives a restart of the
// operator.
func Decide(namespace *corev1.Namespace, input Input) Decision {
	if namespace.DeletionTimestamp != nil {
		return Decision{}
	}
	if !IsSet(namespace) {
		if nsobject.FindCondition(namespace, v1alpha1.ConditionExpiring) == nil {
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
	case nsobject.IsProtected(namespace):
		return suspend(namespace, input, expires, v1alpha1.ReasonDeletionProtected, nsobject.ProtectionMessage(namespace))
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
	warnedAt, isWarned := findWarning(namespace, expires)
	if !isWarned {
		if left := expires.At.Add(-WarningPeriod).Sub(input.Now); left > 0 {
			decision := notExpiring(namespace, input, v1alpha1.ReasonExpiryScheduled,
				msgWarning(namespace.Name, expires, input.Now), "")
			decision.RequeueAfter = min(left, maxRequeue)
			return decision
		}
		return warn(namespace, input, expires)
	}
	left := deletionTime(expires, warnedAt).Sub(input.Now)
	if left <= 0 {
		// The delay equals the time since the deletion was due, so it doubles with each attempt.
		return Decision{ShouldDelete: true, RequeueAfter: min(max(-left, minRetry), maxRetry)}
	}
	decision := Decision{RequeueAfter: min(left, maxRequeue)}
	wanted := expiresSoon(namespace, expires, warnedAt)
	// Another annotation can set the same expiry, and the message contains the command that removes it.
	if nsobject.CompleteCondition(nsobject.FindCondition(namespace, wanted.Type), wanted, wanted.LastTransitionTime) {
		decision.Condition = wanted
	}
	return decision
}

// warn returns the decision to set the condition to True, to record the warning, and to record an Event.
func warn(namespace *corev1.Namespace, input Input, expires Expiry) Decision {
	at := input.Now
	if input.Latest.After(at) {
		at = input.Latest
	}
	at = at.Truncate(time.Second) // Conditions have a precision of one second.
	return Decision{
		// Set the time even if the condition was True before, because it warned of another expiry.
		Condition:    expiresSoon(namespace, expires, at),
		WarnedAt:     ptr.To(formatWarning(at, expires)),
		EventType:    corev1.EventTypeWarning,
		RequeueAfter: max(time.Second, min(deletionTime(expires, at).Sub(input.Now), maxRequeue)),
	}
}

// expiresSoon returns the condition that reports a warning.
func expiresSoon(namespace *corev1.Namespace, expires Expiry, warnedAt time.Time) *corev1.NamespaceCondition {
	return &corev1.NamespaceCondition{
		Type: v1alpha1.ConditionExpiring, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonExpiresSoon,
		Message: msgWarning(namespace.Name, expires, warnedAt), LastTransitionTime: metav1.NewTime(warnedAt),
	}
}

// DecideRefused returns what to do after the API server has refused to delete a Namespace.
func DecideRefused(namespace *corev1.Namespace, refusal error) Decision {
	expires, err := Parse(namespace)
	if err != nil {
		return Decision{}
	}
	warnedAt, isWarned := findWarning(namespace, expires)
	if !isWarned {
		return Decision{}
	}
	wanted := expiresSoon(namespace, expires, warnedAt)
	wanted.Reason = v1alpha1.ReasonDeletionRejected
	wanted.Message += msgRefused + printable.Truncate(refusal.Error(), maxShownRefusal)
	if !nsobject.CompleteCondition(nsobject.FindCondition(namespace, wanted.Type), wanted, wanted.LastTransitionTime) {
		return Decision{}
	}
	return Decision{Condition: wanted, EventType: corev1.EventTypeWarning}
}

// findWarning returns when the operator warned of this expiry. If the condition does not show the warning, or the
// annotation is not exactly what the operator writes for this expiry, the warning has not been given.
func findWarning(namespace *corev1.Namespace, expires Expiry) (at time.Time, isWarned bool) {
	condition := nsobject.FindCondition(namespace, v1alpha1.ConditionExpiring)
	if condition == nil || condition.Status != corev1.ConditionTrue {
		return time.Time{}, false
	}
	record := namespace.Annotations[v1alpha1.AnnotationExpiryWarnedAt]
	text, _, _ := strings.Cut(record, " ")
	at, err := time.Parse(time.RFC3339, text)
	return at, err == nil && record == formatWarning(at, expires)
}

// formatWarning returns the value of v1alpha1.AnnotationExpiryWarnedAt.
func formatWarning(at time.Time, expires Expiry) string {
	return formatTime(at) + " " + expires.At.UTC().Format(time.RFC3339Nano)
}

// deletionTime returns when a Namespace must be deleted if the warning was given at warnedAt.
func deletionTime(expires Expiry, warnedAt time.Time) time.Time {
	if warnedAt.After(expires.At) {
		return warnedAt.Add(WarningPeriod)
	}
	return expires.At
}

// notExpiring returns the decision to set the condition to False and to withdraw a warning, and to record an Event if
// the condition changes and eventType is not empty.
func notExpiring(namespace *corev1.Namespace, input Input, reason, message, eventType string) Decision {
	wanted := corev1.NamespaceCondition{
		Type: v1alpha1.ConditionExpiring, Status: corev1.ConditionFalse, Reason: reason,
		Message: printable.Escape(message),
	}
	existing := nsobject.FindCondition(namespace, v1alpha1.ConditionExpiring)
	if !nsobject.CompleteCondition(existing, &wanted, metav1.NewTime(input.Now.Truncate(time.Second))) {
		return Decision{}
	}
	decision := Decision{Condition: &wanted, EventType: eventType}
	if namespace.Annotations[v1alpha1.AnnotationExpiryWarnedAt] != "" {
		decision.WarnedAt = new(string) // The API server removes an empty annotation.
	}
	return decision
}
