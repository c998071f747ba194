// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

func TestIsScheduled(t *testing.T) {
	for name, test := range map[string]struct {
		conditions []corev1.NamespaceCondition
		want       bool
	}{
		"no condition": {},
		"scheduled": {[]corev1.NamespaceCondition{{
			Type: v1alpha1.ConditionExpiring, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonExpiryScheduled,
		}}, true},
		"soon": {[]corev1.NamespaceCondition{{
			Type: v1alpha1.ConditionExpiring, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonExpiresSoon,
		}}, true},
		"dry run": {[]corev1.NamespaceCondition{{
			Type: v1alpha1.ConditionExpiring, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonExpiryDryRun,
		}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := &corev1.Namespace{Status: corev1.NamespaceStatus{Conditions: test.conditions}}
			if got := IsScheduled(namespace); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}
