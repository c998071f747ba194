// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// Reasons of the Events about a configuration, in addition to v1alpha1.ReasonEnforced.
const (
	reasonNotEnforced          = "NotEnforced"
	reasonInitializerUnhealthy = "InitializerUnhealthy"

	actionRegister = "Register"
)

// ConfigurationConditions returns the conditions of a configuration. It is ready if it is active and not unhealthy. It
// is stalled only if waiting cannot help: policies and permissions are often created in the same release.
func ConfigurationConditions(active, healthy metav1.Condition) []metav1.Condition {
	ready := active
	if active.Status == metav1.ConditionTrue && healthy.Status == metav1.ConditionFalse {
		ready = healthy
	}
	ready.Type = v1alpha1.ConditionReady
	conditions := []metav1.Condition{ready, active, healthy}
	if active.Reason == v1alpha1.ReasonTooManyInitializers {
		stalled := active
		stalled.Type, stalled.Status = v1alpha1.ConditionStalled, metav1.ConditionTrue
		conditions = append(conditions, stalled)
	}
	return conditions
}

// ConfigurationEvents returns the Events for a change of the conditions of a configuration. That a new configuration is
// not enforced yet is not worth a warning.
func ConfigurationEvents(before, after []metav1.Condition) []Event {
	var events []Event
	add := func(eventType, reason string, condition metav1.Condition) {
		events = append(events, Event{Type: eventType, Reason: reason, Action: actionRegister, Note: condition.Message})
	}
	for _, condition := range after {
		old := ptr.Deref(meta.FindStatusCondition(before, condition.Type), metav1.Condition{})
		wasPending := old.Reason == v1alpha1.ReasonEnforcementPending && condition.Reason != old.Reason
		isNewlyPending := condition.Reason == v1alpha1.ReasonEnforcementPending && old.Status == ""
		if old.Status == condition.Status && !wasPending || isNewlyPending {
			continue
		}
		switch {
		case condition.Type == v1alpha1.ConditionActive && condition.Status == metav1.ConditionTrue:
			add(corev1.EventTypeNormal, v1alpha1.ReasonEnforced, condition)
		case condition.Type == v1alpha1.ConditionActive:
			add(corev1.EventTypeWarning, reasonNotEnforced, condition)
		case condition.Type == v1alpha1.ConditionHealthy && condition.Status == metav1.ConditionFalse:
			add(corev1.EventTypeWarning, reasonInitializerUnhealthy, condition)
		}
	}
	return events
}
