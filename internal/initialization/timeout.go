// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
)

// timestampPrecision is the precision of timestamps in conditions: the API server drops fractions
// of a second.
const timestampPrecision = time.Second

// Timeout is the timeout of the initializer whose turn it is.
type Timeout struct {
	Initializer   string
	Configuration string
	Duration      time.Duration
	Policy        v1alpha1.InitializerFailurePolicy
}

// timeoutOf returns the timeout of the initializer whose turn it is, or nil if it has none.
func timeoutOf(state State, registrations map[string]Registration) *Timeout {
	if state.Phase != PhasePending {
		return nil
	}
	registration := registrations[state.Pending[0]]
	seconds := registration.Settings.TimeoutSeconds
	if seconds == nil || *seconds <= 0 {
		return nil
	}
	timeout := &Timeout{
		Initializer: state.Pending[0], Configuration: registration.Configuration,
		Duration: time.Duration(*seconds) * time.Second, Policy: v1alpha1.InitializerFail,
	}
	// Any other value is treated as Fail.
	if policy := registration.Settings.FailurePolicy; policy != nil && *policy == v1alpha1.InitializerIgnore {
		timeout.Policy = v1alpha1.InitializerIgnore
	}
	return timeout
}

// turnCondition returns the InitializerTurn condition if it must be written, and nil otherwise. The
// timeout is counted from its transition time.
//
// It is a separate condition because no other field reliably records when a turn starts: the
// creationTimestamp is from the clock of the API server, and initializers can write the conditions
// of the preceding initializers themselves. If the recorded time is in the future, the turn starts
// now, so that a timeout never expires early.
func turnCondition(namespace *corev1.Namespace, timeout *Timeout, now metav1.Time) *corev1.NamespaceCondition {
	current := nscondition.Find(namespace, v1alpha1.ConditionInitializerTurn)
	switch {
	case timeout == nil && (current == nil || current.Status == corev1.ConditionFalse):
		return nil
	case timeout == nil:
		return &corev1.NamespaceCondition{
			Type: v1alpha1.ConditionInitializerTurn, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonCompleted,
			Message: messageNoTurn, LastTransitionTime: now,
		}
	case !turnStart(current, timeout).IsZero() && !turnStart(current, timeout).After(now.Time):
		return nil
	}
	return &corev1.NamespaceCondition{
		Type: v1alpha1.ConditionInitializerTurn, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonPending,
		Message: turnMessage(timeout.Initializer), LastTransitionTime: now,
	}
}

// TimeRemaining returns the time until the timeout expires. It is zero or negative if the timeout
// has expired. If no condition records the start of the turn, the turn starts now.
func TimeRemaining(namespace *corev1.Namespace, timeout *Timeout, now time.Time) time.Duration {
	start := turnStart(nscondition.Find(namespace, v1alpha1.ConditionInitializerTurn), timeout)
	if start.IsZero() || start.After(now) {
		start = now
	}
	return start.Add(timestampPrecision + timeout.Duration).Sub(now)
}

// turnStart returns the start of the turn according to the condition. It is zero if the condition
// is not about the initializer with this timeout.
func turnStart(condition *corev1.NamespaceCondition, timeout *Timeout) time.Time {
	if condition == nil || condition.Status != corev1.ConditionTrue ||
		condition.Message != turnMessage(timeout.Initializer) {
		return time.Time{}
	}
	return condition.LastTransitionTime.Time
}

// Result returns the result of an initialization that has timed out.
func (t *Timeout) Result() metav1.Status {
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure,
		Reason:   metav1.StatusReasonTimeout,
		Code:     http.StatusGatewayTimeout,
		Message:  timeoutResultMessage(t),
	}
}
