// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package nscondition

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

func TestFind(t *testing.T) {
	g := NewWithT(t)
	namespace := &corev1.Namespace{Status: corev1.NamespaceStatus{Conditions: []corev1.NamespaceCondition{
		{Type: corev1.NamespaceDeletionDiscoveryFailure}, {Type: corev1.NamespaceContentRemaining},
		{Type: corev1.NamespaceFinalizersRemaining},
	}}}
	g.Expect(Find(namespace, corev1.NamespaceContentRemaining)).To(BeIdenticalTo(&namespace.Status.Conditions[1]))
	g.Expect(Find(namespace, "corp.com/Ready")).To(BeNil())
}
