// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
)

// ComputeExpired returns the condition to set on a Namespace that has expired before it is deleted, or nil if the
// Namespace already has it. The API server allows the deletion only if the condition became True after the expiry.
func ComputeExpired(namespace *corev1.Namespace, now time.Time) *corev1.NamespaceCondition {
	expires, err := Parse(namespace)
	if err != nil || isRecorded(namespace, expires) {
		return nil
	}
	return &corev1.NamespaceCondition{
		Type: v1alpha1.ConditionExpired, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now),
		Reason: v1alpha1.ReasonExpired, Message: msgExpired(expires),
	}
}

// ComputeNotExpired returns the condition to set on a Namespace whose expiry was changed or removed after
// ComputeExpired, or nil.
func ComputeNotExpired(namespace *corev1.Namespace, now time.Time) *corev1.NamespaceCondition {
	have := nsobject.FindCondition(namespace, v1alpha1.ConditionExpired)
	if have == nil || have.Status != corev1.ConditionTrue {
		return nil
	}
	if IsSet(namespace) {
		if expires, err := Parse(namespace); err == nil && isRecorded(namespace, expires) {
			return nil
		}
	}
	return &corev1.NamespaceCondition{
		Type: v1alpha1.ConditionExpired, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(now),
		Reason: v1alpha1.ReasonExpiryChanged, Message: msgExpiryChanged,
	}
}

// isRecorded reports whether the condition became True after the expiry.
func isRecorded(namespace *corev1.Namespace, expires Expiry) bool {
	have := nsobject.FindCondition(namespace, v1alpha1.ConditionExpired)
	return have != nil && have.Status == corev1.ConditionTrue && !have.LastTransitionTime.Time.Before(expires.At)
}

// IsScheduled reports whether the operator reports in a condition of a Namespace that it will delete the Namespace
// after the expiry.
func IsScheduled(namespace *corev1.Namespace) bool {
	condition := nsobject.FindCondition(namespace, v1alpha1.ConditionExpiring)
	return condition != nil &&
		(condition.Status == corev1.ConditionTrue || condition.Reason == v1alpha1.ReasonExpiryScheduled)
}
