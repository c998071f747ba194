// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
)

// roundedDown is by how much the time of a condition may be too early: the API server keeps
// whole seconds.
const roundedDown = time.Second

// Limit is how long a Namespace waits for the initializer whose turn it is.
type Limit struct {
	Initializer   string
	Configuration string
	Timeout       time.Duration
	Policy        v1alpha1.InitializerFailurePolicy
}

// LimitOf returns the limit of the initializer whose turn it is, or nil where it may take as
// long as it takes.
func LimitOf(state State, registered map[string]Registration) *Limit {
	if state.Stage != StagePending {
		return nil
	}
	registration := registered[state.Pending[0]]
	seconds := registration.Settings.TimeoutSeconds
	if seconds == nil || *seconds <= 0 {
		return nil
	}
	limit := &Limit{
		Initializer: state.Pending[0], Configuration: registration.Configuration,
		Timeout: time.Duration(*seconds) * time.Second, Policy: v1alpha1.InitializerFail,
	}
	if policy := registration.Settings.FailurePolicy; policy != nil && *policy == v1alpha1.InitializerIgnore {
		limit.Policy = v1alpha1.InitializerIgnore
	}
	return limit
}

// TurnCondition returns the condition from which the limit is counted, where it has to be
// written, and nil where the Namespace has it already or needs none.
//
// It is a condition of its own since nothing else tells when a turn began: creationTimestamp is
// by the clock of the API server, and the conditions of the initializers before this one may be
// their own words, by their own clocks. A time that lies in the future is of no use; the turn
// begins now, then, which is never too early.
func TurnCondition(namespace *corev1.Namespace, limit *Limit, now metav1.Time) *corev1.NamespaceCondition {
	have := nscondition.Find(namespace, v1alpha1.ConditionInitializerTurn)
	switch {
	case limit == nil && (have == nil || have.Status == corev1.ConditionFalse):
		return nil
	case limit == nil:
		return &corev1.NamespaceCondition{
			Type: v1alpha1.ConditionInitializerTurn, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonCompleted,
			Message: "it is not the turn of any initializer with a time-out", LastTransitionTime: now,
		}
	case !turnBegan(have, limit).IsZero() && !turnBegan(have, limit).After(now.Time):
		return nil
	}
	return &corev1.NamespaceCondition{
		Type: v1alpha1.ConditionInitializerTurn, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonPending,
		Message: turnMessage(limit), LastTransitionTime: now,
	}
}

// TimeLeft returns how long a Namespace still waits; zero or less if the time is over. Without a
// word on when the turn began it has not begun.
func TimeLeft(namespace *corev1.Namespace, limit *Limit, now time.Time) time.Duration {
	began := turnBegan(nscondition.Find(namespace, v1alpha1.ConditionInitializerTurn), limit)
	if began.IsZero() || began.After(now) {
		began = now
	}
	return began.Add(roundedDown + limit.Timeout).Sub(now)
}

// turnBegan returns when the turn of the initializer began, by the condition; zero if it is
// about another one or does not say.
func turnBegan(condition *corev1.NamespaceCondition, limit *Limit) time.Time {
	if condition == nil || condition.Status != corev1.ConditionTrue || condition.Message != turnMessage(limit) {
		return time.Time{}
	}
	return condition.LastTransitionTime.Time
}

// turnMessage tells turns apart, so it must not depend on what can change during one.
func turnMessage(limit *Limit) string {
	return fmt.Sprintf("it is the turn of %s, which has a time-out", limit.Initializer)
}

// String tells how long was waited, as in "not done within 30s of its turn".
func (l *Limit) String() string {
	return fmt.Sprintf("not done within %s of its turn, the time-out in NamespaceInitializerConfiguration %q",
		l.Timeout, l.Configuration)
}

// Result returns the result of an initialization that has failed because the time was over.
func (l *Limit) Result() metav1.Status {
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure,
		Reason:   metav1.StatusReasonTimeout,
		Code:     http.StatusGatewayTimeout,
		Message:  fmt.Sprintf("initializer %s: %s", l.Initializer, l),
	}
}
