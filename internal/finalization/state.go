// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/internal/nscondition"
)

// State is how far the end of a terminating Namespace has come, in one word.
type State string

// The states.
const (
	// StateEmptying: nothing is known to be in the way.
	StateEmptying State = "emptying"
	// StateRemaining: objects remain that take their time or have finalizers.
	StateRemaining State = "remaining"
	// StateFailing: types could not be discovered, or objects not be deleted.
	StateFailing State = "failing"
	// StateOthers: the token is no longer there, and the Namespace waits for others.
	StateOthers State = "others"
)

// States are all of them.
func States() []State {
	return []State{StateEmptying, StateRemaining, StateFailing, StateOthers}
}

// StateOf returns the state of a terminating Namespace, as its conditions tell it.
func StateOf(namespace *corev1.Namespace, token corev1.FinalizerName) State {
	switch {
	case !HasToken(namespace, token):
		return StateOthers
	case hasAnyOf(namespace, corev1.NamespaceDeletionDiscoveryFailure, corev1.NamespaceDeletionGVParsingFailure,
		corev1.NamespaceDeletionContentFailure):
		return StateFailing
	case hasAnyOf(namespace, corev1.NamespaceContentRemaining, corev1.NamespaceFinalizersRemaining):
		return StateRemaining
	}
	return StateEmptying
}

func hasAnyOf(namespace *corev1.Namespace, conditionTypes ...corev1.NamespaceConditionType) bool {
	for _, conditionType := range conditionTypes {
		condition := nscondition.Find(namespace, conditionType)
		if condition != nil && condition.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}
