// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package nsobject

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

func TestFindCondition(t *testing.T) {
	g := NewWithT(t)
	namespace := &corev1.Namespace{Status: corev1.NamespaceStatus{Conditions: []corev1.NamespaceCondition{
		{Type: corev1.NamespaceDeletionDiscoveryFailure}, {Type: corev1.NamespaceContentRemaining},
		{Type: corev1.NamespaceFinalizersRemaining},
	}}}
	g.Expect(FindCondition(namespace, corev1.NamespaceContentRemaining)).To(BeIdenticalTo(&namespace.Status.Conditions[1]))
	g.Expect(FindCondition(namespace, "corp.com/Ready")).To(BeNil())
}
