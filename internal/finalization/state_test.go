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
		finalizers []corev1.FinalizerName
		conditions []corev1.NamespaceCondition
		want       State
	}{
		"no conditions":                    {finalizers: own, want: StateEmptying},
		"no remaining objects":             {finalizers: own, conditions: isFalse, want: StateEmptying},
		"objects remain":                   {finalizers: own, conditions: isTrue(corev1.NamespaceContentRemaining), want: StateRemaining},
		"finalizers remain":                {finalizers: own, conditions: isTrue(corev1.NamespaceFinalizersRemaining), want: StateRemaining},
		"discovery fails":                  {finalizers: own, conditions: isTrue(corev1.NamespaceDeletionDiscoveryFailure), want: StateFailing},
		"a group version cannot be parsed": {finalizers: own, conditions: isTrue(corev1.NamespaceDeletionGVParsingFailure), want: StateFailing},
		"a deletion fails and objects remain": {
			finalizers: own,
			conditions: isTrue(corev1.NamespaceContentRemaining, corev1.NamespaceDeletionContentFailure), want: StateFailing,
		},
		"only finalizers of other controllers": {
			finalizers: []corev1.FinalizerName{agent}, conditions: isTrue(corev1.NamespaceContentRemaining), want: StateWaiting,
		},
		"no finalizers": {want: StateWaiting},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			namespace := &corev1.Namespace{}
			namespace.Spec.Finalizers, namespace.Status.Conditions = test.finalizers, test.conditions
			g.Expect(StateOf(namespace, corev1.FinalizerKubernetes)).To(Equal(test.want))
			g.Expect(States()).To(ContainElement(test.want))
		})
	}
}
