// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/internal/nscondition"
)

// State is the state of a terminating Namespace, as reported in metrics.
type State string

const (
	// StateEmptying means that no obstacle is known.
	StateEmptying State = "emptying"
	// StateRemaining means that objects remain.
	StateRemaining State = "remaining"
	// StateFailing means that some types could not be discovered or some objects could not be deleted.
	StateFailing State = "failing"
	// StateWaiting means that the namespace finalizer was removed, but other finalizers remain.
	StateWaiting State = "waiting"
)

// States returns all states.
func States() []State {
	return []State{StateEmptying, StateRemaining, StateFailing, StateWaiting}
}

// StateOf returns the state of a terminating Namespace based on its finalizers and conditions.
func StateOf(namespace *corev1.Namespace, finalizer corev1.FinalizerName) State {
	switch {
	case !HasFinalizer(namespace, finalizer):
		return StateWaiting
	case hasTrueCondition(namespace, corev1.NamespaceDeletionDiscoveryFailure, corev1.NamespaceDeletionGVParsingFailure,
		corev1.NamespaceDeletionContentFailure):
		return StateFailing
	case hasTrueCondition(namespace, corev1.NamespaceContentRemaining, corev1.NamespaceFinalizersRemaining):
		return StateRemaining
	}
	return StateEmptying
}

func hasTrueCondition(namespace *corev1.Namespace, conditionTypes ...corev1.NamespaceConditionType) bool {
	for _, conditionType := range conditionTypes {
		condition := nscondition.Find(namespace, conditionType)
		if condition != nil && condition.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}
