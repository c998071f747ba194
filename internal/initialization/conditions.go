// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
	"github.com/nslifecycle/nslifecycle/internal/protection"
)

// ComputeConditions returns the conditions that a Namespace in this state should
// have and does not: Initializing, and one "<name>/Initialized" for each
// initializer. An empty result means that nothing has to be written. Conditions of
// other types never appear in it.
//
// What an initializer says of its own progress in its own condition stays, as long
// as it does not contradict the list. What was written of one that was skipped stays, too.
func ComputeConditions(
	namespace *corev1.Namespace, state State, now metav1.Time,
) []corev1.NamespaceCondition {
	wanted := []corev1.NamespaceCondition{initializingCondition(namespace, state)}
	pending := map[string]int{}
	for i, name := range state.Pending {
		pending[name] = i
	}
	for _, name := range state.All {
		turn, isPending := pending[name]
		if !isPending && isSkipped(namespace, name) {
			continue // It was written with the list, and is not to become "done" now.
		}
		wanted = append(wanted, initializerCondition(name, turn, isPending))
	}

	var changed []corev1.NamespaceCondition
	for i, want := range wanted {
		want.Message = nscondition.Message(want.Message)
		have := nscondition.Find(namespace, want.Type)
		if have != nil {
			isOwn := i > 0
			if isOwn && saysTheSame(have, want) && !isReason(have.Reason) {
				continue
			}
			if have.Status == want.Status && have.Reason == want.Reason && have.Message == want.Message {
				continue
			}
		}
		want.LastTransitionTime = now
		if have != nil && have.Status == want.Status {
			want.LastTransitionTime = have.LastTransitionTime
		}
		changed = append(changed, want)
	}
	return changed
}

// IsInitializing tells whether a Namespace has the condition Initializing with
// status True.
func IsInitializing(namespace *corev1.Namespace) bool {
	condition := nscondition.Find(namespace, v1alpha1.ConditionInitializing)
	return condition != nil && condition.Status == corev1.ConditionTrue
}

func initializingCondition(namespace *corev1.Namespace, state State) corev1.NamespaceCondition {
	condition := corev1.NamespaceCondition{
		Type: v1alpha1.ConditionInitializing, Status: corev1.ConditionFalse,
	}
	switch state.Stage {
	case StagePending:
		condition.Status = corev1.ConditionTrue
		condition.Reason = v1alpha1.ReasonPending
		condition.Message = fmt.Sprintf("waiting for %s (%d of %d)",
			state.Pending[0], len(state.All)-len(state.Pending)+1, len(state.All))
		if state.ResultProblem != "" {
			condition.Message += "; " + state.ResultProblem
		}
	case StageFailed:
		condition.Reason = v1alpha1.ReasonFailed
		condition.Message = failureMessage(state.Failure)
		if state.ResultProblem != "" {
			condition.Message += "; " + state.ResultProblem
		}
		if why := protection.WhyNotDelete(namespace); why != "" {
			condition.Message += "; the namespace is not deleted: " + why
		}
	case StageCompleted:
		condition.Reason = v1alpha1.ReasonCompleted
		condition.Message = completedMessage(SkippedOf(namespace, state))
	case StageNotRequired:
		condition.Reason = v1alpha1.ReasonNotRequired
		condition.Message = "this namespace has no initializers to wait for"
	}
	return condition
}

func initializerCondition(name string, turn int, isPending bool) corev1.NamespaceCondition {
	condition := corev1.NamespaceCondition{
		Type:    corev1.NamespaceConditionType(name + v1alpha1.ConditionInitializedSuffix),
		Status:  corev1.ConditionTrue,
		Reason:  v1alpha1.ReasonCompleted,
		Message: "the initializer has done its work",
	}
	if isPending {
		condition.Status = corev1.ConditionFalse
		condition.Reason = v1alpha1.ReasonPending
		condition.Message = "the initializer has not removed its name from the list yet"
		if turn > 0 {
			condition.Message = "the initializer waits for its turn"
		}
	}
	return condition
}

// failureMessage makes one sentence of what an initializer left as result.
func failureMessage(failure *metav1.Status) string {
	switch {
	case failure.Message != "" && failure.Reason != "":
		return fmt.Sprintf("%s: %s", failure.Reason, failure.Message)
	case failure.Message != "":
		return failure.Message
	case failure.Reason != "":
		return string(failure.Reason)
	}
	return "an initializer reported failure without saying why"
}

// saysTheSame tells whether two conditions agree on whether the initializer is
// done: an initializer may leave Unknown while it works.
func saysTheSame(have *corev1.NamespaceCondition, want corev1.NamespaceCondition) bool {
	return (have.Status == corev1.ConditionTrue) == (want.Status == corev1.ConditionTrue)
}

// isReason tells whether a reason is one that the operator itself writes.
func isReason(reason string) bool {
	return reason == v1alpha1.ReasonPending || reason == v1alpha1.ReasonCompleted || isSkipReason(reason)
}
