// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

func TestStateOf(t *testing.T) {
	const agent = "example.com/agent"
	isTrue := func(conditionTypes ...corev1.NamespaceConditionType) []corev1.NamespaceCondition {
		var conditions []corev1.NamespaceCondition
		for _, conditionType := range conditionTypes {
			conditions = append(conditions, corev1.NamespaceCondition{Type: conditionType, Status: corev1.ConditionTrue})
		}
		return conditions
	}
	isFalse := isTrue(corev1.NamespaceContentRemaining, corev1.NamespaceDeletionContentFailure)
	for i := range isFalse {
		isFalse[i].Status = corev1.ConditionFalse
	}
	own := []corev1.FinalizerName{agent, corev1.FinalizerKubernetes}
	tests := map[string]struct {
		tokens     []corev1.FinalizerName
		conditions []corev1.NamespaceCondition
		want       State
	}{
		"nothing is told yet":     {tokens: own, want: StateEmptying},
		"nothing remains":         {tokens: own, conditions: isFalse, want: StateEmptying},
		"objects remain":          {tokens: own, conditions: isTrue(corev1.NamespaceContentRemaining), want: StateRemaining},
		"finalizers remain":       {tokens: own, conditions: isTrue(corev1.NamespaceFinalizersRemaining), want: StateRemaining},
		"discovery fails":         {tokens: own, conditions: isTrue(corev1.NamespaceDeletionDiscoveryFailure), want: StateFailing},
		"a version is unreadable": {tokens: own, conditions: isTrue(corev1.NamespaceDeletionGVParsingFailure), want: StateFailing},
		"a deletion fails, and so something remains": {
			tokens:     own,
			conditions: isTrue(corev1.NamespaceContentRemaining, corev1.NamespaceDeletionContentFailure), want: StateFailing,
		},
		"others have it": {
			tokens: []corev1.FinalizerName{agent}, conditions: isTrue(corev1.NamespaceContentRemaining), want: StateOthers,
		},
		"there is no token": {want: StateOthers},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			namespace := &corev1.Namespace{}
			namespace.Spec.Finalizers, namespace.Status.Conditions = test.tokens, test.conditions
			g.Expect(StateOf(namespace, corev1.FinalizerKubernetes)).To(Equal(test.want))
			g.Expect(States()).To(ContainElement(test.want))
		})
	}
}
