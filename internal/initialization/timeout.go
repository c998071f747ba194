// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"cmp"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// Timeout is the timeout of the initializer whose turn it is.
type Timeout struct {
	Initializer   string
	Configuration string
	Duration      time.Duration
	Policy        v1alpha1.FailurePolicy
}

// timeoutOf returns the timeout of the initializer whose turn it is, or nil if it has none.
func timeoutOf(state State, registrations map[string]Registration) *Timeout {
	if state.Phase != PhaseInitializing {
		return nil
	}
	registration := registrations[state.Pending[0]]
	seconds := registration.Settings.TimeoutSeconds
	policy := cmp.Or(registration.Settings.FailurePolicy, v1alpha1.FailurePolicyFail)
	// With an unknown policy, which a later version can have stored, the Namespace waits: Fail deletes it, and with
	// Ignore, users can write to a Namespace that is not prepared.
	isDefined := policy == v1alpha1.FailurePolicyFail || policy == v1alpha1.FailurePolicyIgnore
	if seconds == nil || *seconds <= 0 || !isDefined {
		return nil
	}
	return &Timeout{
		Initializer: state.Pending[0], Configuration: registration.Configuration,
		Duration: time.Duration(*seconds) * time.Second, Policy: policy,
	}
}

// Remaining returns the time until the timeout expires. It is zero or negative if the timeout has
// expired. If the Namespace does not record the start of the turn, the turn starts now.
func (t *Timeout) Remaining(namespace *corev1.Namespace, now time.Time) time.Duration {
	start := TurnStart(namespace, t.Initializer, now)
	if start.IsZero() {
		start = now
	}
	return RemainingSince(start, t.Duration, now)
}

// Result returns the result of an initialization that has timed out.
func (t *Timeout) Result() metav1.Status { return TimeoutResult(timeoutResultMessage(t)) }

// TimeoutResult returns the result of an initialization that has exceeded a deadline.
func TimeoutResult(message string) metav1.Status {
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure,
		Reason:   metav1.StatusReasonTimeout,
		Code:     http.StatusGatewayTimeout,
		Message:  message,
	}
}
