// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
)

// UnresponsiveAfter is how long a Namespace must wait for an initializer without a response before
// the configurations that register the initializer report it as unresponsive.
const UnresponsiveAfter = time.Minute

// Health is the health of the initializers.
type Health struct {
	// IsAuthorized reports whether a subject other than the control plane and cluster administrators
	// is authorized to run initializers.
	IsAuthorized bool
	// AuthorizationError is the reason why the value of IsAuthorized is unknown; empty if it is known.
	AuthorizationError string
	// Unresponsive contains the unresponsive initializers by name.
	Unresponsive map[string]Unresponsive
}

// Unresponsive describes the Namespaces that wait for an unresponsive initializer.
type Unresponsive struct {
	// Namespace is the name of the Namespace that has been waiting longest. Since is the time when
	// it started to wait.
	Namespace string
	Since     time.Time
	// Count is the number of initializing Namespaces.
	Count int
}

// FindUnresponsive returns the unresponsive initializers. An initializer is unresponsive if a
// Namespace has been waiting for it for at least UnresponsiveAfter and the initializer has not set
// its own condition. An initializer that has set its condition is running, even if it takes a long
// time.
func FindUnresponsive(namespaces []corev1.Namespace, now time.Time) map[string]Unresponsive {
	result := map[string]Unresponsive{}
	for i := range namespaces {
		namespace := &namespaces[i]
		state := ParseState(namespace)
		if state.Phase != PhaseInitializing || namespace.DeletionTimestamp != nil {
			continue
		}
		name := state.Pending[0]
		since := waitingSince(namespace, state)
		if since.IsZero() || now.Sub(since) < UnresponsiveAfter || hasResponded(namespace, name) {
			continue
		}
		unresponsive, ok := result[name]
		unresponsive.Count++
		isOlder := since.Before(unresponsive.Since) ||
			(since.Equal(unresponsive.Since) && namespace.Name < unresponsive.Namespace)
		if !ok || isOlder {
			unresponsive.Namespace, unresponsive.Since = namespace.Name, since
		}
		result[name] = unresponsive
	}
	return result
}

// waitingSince returns the time since which a Namespace has been waiting for the first pending
// initializer, according to its conditions. It is zero if the operator has not set the conditions
// yet.
func waitingSince(namespace *corev1.Namespace, state State) time.Time {
	initializing := nsobject.FindCondition(namespace, v1alpha1.ConditionInitializing)
	if initializing == nil || initializing.Status != corev1.ConditionTrue {
		return time.Time{}
	}
	since := initializing.LastTransitionTime.Time
	for _, name := range state.All {
		if slices.Contains(state.Pending, name) {
			continue
		}
		done := nsobject.FindCondition(namespace, initializedCondition(name))
		if done != nil && done.LastTransitionTime.After(since) {
			since = done.LastTransitionTime.Time
		}
	}
	return since
}

// hasResponded reports whether an initializer has set its own condition.
func hasResponded(namespace *corev1.Namespace, name string) bool {
	condition := nsobject.FindCondition(namespace, initializedCondition(name))
	return condition != nil && !IsOperatorReason(condition.Reason)
}

// HealthyCondition returns the Healthy condition of a configuration.
func HealthyCondition(
	configuration *v1alpha1.NamespaceInitializerConfiguration, health Health,
) metav1.Condition {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionHealthy, Status: metav1.ConditionFalse, ObservedGeneration: configuration.Generation,
	}
	var others, unresponsiveMessages []string // The operator is authorized to run its own initializer.
	for _, initializer := range configuration.Initializers {
		if initializer.Name != v1alpha1.TemplatesInitializer {
			others = append(others, initializer.Name)
		}
		if unresponsive, ok := health.Unresponsive[initializer.Name]; ok {
			unresponsiveMessages = append(unresponsiveMessages, unresponsiveMessage(initializer.Name, unresponsive))
		}
	}
	switch {
	case len(configuration.Initializers) == 0:
		condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonHealthy
		condition.Message = messageNothingToServe
	case health.AuthorizationError == "" && !health.IsAuthorized && len(others) > 0:
		condition.Reason = v1alpha1.ReasonInitializerUnauthorized
		condition.Message = unauthorizedMessage(others)
	case len(unresponsiveMessages) > 0:
		condition.Reason = v1alpha1.ReasonInitializerUnresponsive
		condition.Message = strings.Join(unresponsiveMessages, "; ")
	case health.AuthorizationError != "" && len(others) > 0:
		condition.Status, condition.Reason = metav1.ConditionUnknown, v1alpha1.ReasonAuthorizationUnknown
		condition.Message = messageHealthUnknown + health.AuthorizationError
	default:
		condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonHealthy
		condition.Message = healthyMessage()
	}
	return condition
}
