// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package nsobject

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FindCondition returns the condition with the given type, or nil if the Namespace has none.
func FindCondition(
	namespace *corev1.Namespace, conditionType corev1.NamespaceConditionType,
) *corev1.NamespaceCondition {
	for i := range namespace.Status.Conditions {
		if namespace.Status.Conditions[i].Type == conditionType {
			return &namespace.Status.Conditions[i]
		}
	}
	return nil
}

// CompleteCondition sets the transition time of the wanted condition. It reports whether the wanted
// condition differs from the current one, which is nil if the Namespace does not have the
// condition. If the status does not change, it keeps the current transition time; otherwise, it
// sets the transition time to now.
func CompleteCondition(current, want *corev1.NamespaceCondition, now metav1.Time) (changed bool) {
	want.LastTransitionTime = now
	if current == nil || current.Status != want.Status {
		return true
	}
	want.LastTransitionTime = current.LastTransitionTime
	return current.Reason != want.Reason || current.Message != want.Message
}
