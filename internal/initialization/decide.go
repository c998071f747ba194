// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// Decision describes all actions of the operator for the initialization of a Namespace. The
// operator applies the fields in this order.
type Decision struct {
	// State is the state that the decision is based on.
	State State
	// LabelRepair is the value that the label v1alpha1.LabelInitializing should have. If it is empty, the operator removes
	// the label, a blank pending list and the result. If it is set, the operator makes no other changes, because the watch
	// event for the repair triggers the next decision.
	LabelRepair *string
	// Conditions are the conditions to set.
	Conditions []corev1.NamespaceCondition
	// TurnStart is the value that v1alpha1.AnnotationTurnStartedAt gets in the same write; nil if it does not change.
	TurnStart *string
	// IsThrottled reports whether the conditions only report the progress of an initialization, or the start of one that
	// waits only for templates. Writes of such conditions can be rate-limited.
	IsThrottled bool
	// Events are recorded after LabelRepair or Conditions are written.
	Events []Event

	// At most one of the fields Skip, Fail and Delete is set. Each requires a live read.

	// Skip removes initializers from the pending list.
	Skip *Skip
	// Fail sets the result of an initialization that has timed out.
	Fail *Timeout
	// Delete reports whether to delete the Namespace because its initialization has failed.
	Delete bool

	// KeepReason is the reason why the Namespace is not deleted even though its initialization has
	// failed.
	KeepReason string
	// RequeueAfter is the time after which the decision changes without a watch event; zero if it does
	// not change.
	RequeueAfter time.Duration
}

// Event is an Event about a Namespace.
type Event struct {
	Type, Reason, Action, Note string
}

// RequiresLiveRead reports whether a decision skips initializers, sets a failure result, or deletes
// the Namespace. Such a decision must be repeated with objects that are read from the API server
// instead of the cache.
func (d *Decision) RequiresLiveRead() bool { return d.Skip != nil || d.Fail != nil || d.Delete }

// HasReport reports whether a decision writes conditions or the start of a turn.
func (d *Decision) HasReport() bool { return len(d.Conditions) > 0 || d.TurnStart != nil }

// Decide returns the actions of the operator for a Namespace. The decision depends only on the
// arguments.
func Decide(namespace *corev1.Namespace, registry Registry, exempt []string, now time.Time) Decision {
	decision := Decision{State: ParseState(namespace)}
	if namespace.DeletionTimestamp != nil {
		decision.Conditions = ComputeConditions(namespace, decision.State, metav1.NewTime(now))
		return decision
	}
	if decision.State.LabelRepair != nil {
		decision.decideLabelRepair()
		return decision
	}
	if decision.State.Phase == PhaseFailed {
		decision.KeepReason = WhyNotDelete(namespace, decision.State, exempt)
		decision.Delete = decision.KeepReason == ""
	}
	timeout := timeoutOf(decision.State, registry.Registrations)
	decision.decideConditions(namespace, timeout, metav1.NewTime(now))
	if decision.State.Phase == PhaseInitializing {
		decision.decideWaiting(namespace, registry, timeout, now)
	}
	return decision
}

func (d *Decision) decideLabelRepair() {
	d.LabelRepair = d.State.LabelRepair
	note := messageLabelSet
	if *d.LabelRepair == "" {
		note = messageLabelRemoved
	}
	d.Events = []Event{{corev1.EventTypeWarning, eventRepaired, actionRepair, note}}
}

func (d *Decision) decideConditions(namespace *corev1.Namespace, timeout *Timeout, now metav1.Time) {
	d.Conditions = ComputeConditions(namespace, d.State, now)
	for _, condition := range d.Conditions {
		if condition.Type == v1alpha1.ConditionInitializing {
			d.Events = initializingEvents(d.State, d.KeepReason, condition)
		}
	}
	d.TurnStart = turnStartChange(namespace, d.State, timeout, now.Time)
	// Timeouts are counted from the start of the turn.
	d.IsThrottled = d.State.Phase == PhaseInitializing && !isFirstReport(namespace, d.State) && d.TurnStart == nil
}

// PendingRemoval describes the write in which an initializer of the operator removes its name from the pending
// list.
type PendingRemoval struct {
	// Pending is the pending list without the name. If it is empty, the write completes the
	// initialization.
	Pending string
	// Conditions are the conditions of the Namespace that the write sets.
	Conditions []corev1.NamespaceCondition
}

// RemovePending returns the write in which an initializer of the operator removes its name from the pending list.
func RemovePending(namespace *corev1.Namespace, name string, now metav1.Time) PendingRemoval {
	after := namespace.DeepCopy()
	pending := removeNames(after.Annotations[v1alpha1.AnnotationPendingInitializers], []string{name})
	after.Annotations[v1alpha1.AnnotationPendingInitializers] = pending
	return PendingRemoval{Pending: pending, Conditions: ComputeConditions(after, ParseState(after), now)}
}

// initializingEvents returns the Events for a change of the Initializing condition. There are none about the start and
// the success of an initialization, which the conditions show: an Event costs as much as an object of a template.
func initializingEvents(state State, keepReason string, condition corev1.NamespaceCondition) []Event {
	event := Event{Type: corev1.EventTypeWarning, Action: actionInitialize}
	switch {
	case state.Phase == PhaseInitializing && state.ResultProblem != "":
		event.Reason, event.Note = eventInvalidResult, state.ResultProblem
	case state.Phase == PhaseFailed:
		event.Reason, event.Note = eventFailed, condition.Message+failedOutcome(keepReason)
	default:
		return nil
	}
	return []Event{event}
}

// decideWaiting decides whether to skip pending initializers or to fail the initialization.
// Deregistered initializers are skipped before timeouts are considered.
func (d *Decision) decideWaiting(namespace *corev1.Namespace, registry Registry, timeout *Timeout, now time.Time) {
	var deregistered []string
	for _, name := range d.State.Pending {
		if _, ok := registry.Registrations[name]; ok {
			continue
		}
		since, ok := registry.DeregisteredSince[name]
		if !ok {
			since = now
		}
		if remaining := since.Add(DeregistrationDelay).Sub(now); remaining > 0 {
			d.RequeueAfter = earlier(d.RequeueAfter, remaining)
			continue
		}
		deregistered = append(deregistered, name)
	}
	switch {
	case len(deregistered) > 0:
		d.Skip = newSkip(namespace, deregistered, v1alpha1.ReasonDeregistered, messageDeregistered, now)
	case timeout == nil:
	case timeout.Remaining(namespace, now) > 0:
		d.RequeueAfter = earlier(d.RequeueAfter, timeout.Remaining(namespace, now))
	case timeout.Policy == v1alpha1.FailurePolicyIgnore:
		names := []string{timeout.Initializer}
		d.Skip = newSkip(namespace, names, v1alpha1.ReasonTimedOut, timedOutMessage(timeout), now)
	default:
		d.Fail = timeout
	}
}

// earlier returns the shorter of two delays. Zero means that a delay is not set.
func earlier(a, b time.Duration) time.Duration {
	if a == 0 || (b > 0 && b < a) {
		return b
	}
	return a
}
