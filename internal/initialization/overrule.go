// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
)

// DeregistrationDelay is how long an initializer has to be missing from all configurations
// before no Namespace waits for it any more: a configuration that is deleted and applied again,
// as kubectl replace --force does, must not open a gate.
const DeregistrationDelay = 5 * time.Second

// Overruling is what the operator does about initializers that have not done their work: one of
// the first two, or neither.
type Overruling struct {
	// Dropped are those that no configuration names any more, in order.
	Dropped []string
	// Expired is the limit of the one whose time is over.
	Expired *Limit
	// After is when to look again where there is nothing to do yet; 0 if nothing will come of it.
	After time.Duration
}

// Overrule decides what to do. An initializer is dropped only if it is among the absent ones,
// those that have been missing from all configurations for DeregistrationDelay, and is missing
// still.
func Overrule(
	namespace *corev1.Namespace, state State, registered map[string]Registration, absent []string, now time.Time,
) Overruling {
	if state.Stage != StagePending || namespace.DeletionTimestamp != nil {
		return Overruling{}
	}
	var dropped []string
	for _, name := range Unregistered(state.Pending, registered) {
		if slices.Contains(absent, name) {
			dropped = append(dropped, name)
		}
	}
	if len(dropped) > 0 {
		return Overruling{Dropped: dropped}
	}
	limit := LimitOf(state, registered)
	if limit == nil {
		return Overruling{}
	}
	if left := TimeLeft(namespace, limit, now); left > 0 {
		return Overruling{After: left}
	}
	return Overruling{Expired: limit}
}

// Skipped returns the initializers that are taken off the list, with the reason of their
// conditions and what to say about each.
func (o Overruling) Skipped() (names []string, reason, message string) {
	switch {
	case len(o.Dropped) > 0:
		return o.Dropped, v1alpha1.ReasonDeregistered,
			"skipped: no NamespaceInitializerConfiguration names the initializer any more"
	case o.Expired != nil && o.Expired.Policy == v1alpha1.InitializerIgnore:
		return []string{o.Expired.Initializer}, v1alpha1.ReasonTimedOut, "skipped: " + o.Expired.String()
	}
	return nil, "", ""
}

// SkippedConditions returns the conditions of initializers that are taken off the list. They
// stay: ComputeConditions leaves them alone.
func SkippedConditions(names []string, reason, message string, now metav1.Time) []corev1.NamespaceCondition {
	conditions := make([]corev1.NamespaceCondition, 0, len(names))
	for _, name := range names {
		conditions = append(conditions, corev1.NamespaceCondition{
			Type:   corev1.NamespaceConditionType(name + v1alpha1.ConditionInitializedSuffix),
			Status: corev1.ConditionFalse, Reason: reason, Message: message, LastTransitionTime: now,
		})
	}
	return conditions
}

// Without returns a list as it is written on the Namespace without some of its names. The
// remaining entries keep their spelling, which admission compares; a list without any name is "".
func Without(list string, names []string) string {
	var left []string
	for entry := range strings.SplitSeq(list, ",") {
		if !slices.Contains(names, strings.Trim(entry, blanks)) {
			left = append(left, entry)
		}
	}
	rest := strings.Join(left, ",")
	if len(SplitNames(rest)) == 0 {
		return ""
	}
	return rest
}

// SkippedOf returns which of its initializers a Namespace has gone on without, in order.
func SkippedOf(namespace *corev1.Namespace, state State) []string {
	var skipped []string
	for _, name := range state.All {
		if !slices.Contains(state.Pending, name) && isSkipped(namespace, name) {
			skipped = append(skipped, name)
		}
	}
	return skipped
}

// isSkipped tells whether the condition of an initializer says that it was taken off the list.
func isSkipped(namespace *corev1.Namespace, name string) bool {
	condition := nscondition.Find(namespace,
		corev1.NamespaceConditionType(name+v1alpha1.ConditionInitializedSuffix))
	return condition != nil && condition.Status == corev1.ConditionFalse && isSkipReason(condition.Reason)
}

func isSkipReason(reason string) bool {
	return reason == v1alpha1.ReasonTimedOut || reason == v1alpha1.ReasonDeregistered
}

// completedMessage says which initializers have not done their work, if any.
func completedMessage(skipped []string) string {
	const done = "all initializers have done their work"
	if len(skipped) == 0 {
		return done
	}
	return fmt.Sprintf("%s, but for %s, which %s skipped", done, Enumerate(skipped), WasOrWere(skipped))
}

// Enumerate makes "a", "a and b" or "a, b and c" of names.
func Enumerate(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// WasOrWere is the verb that goes with so many names.
func WasOrWere(names []string) string {
	if len(names) == 1 {
		return "was"
	}
	return "were"
}
