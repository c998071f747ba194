// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package scheme

import (
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
)

func TestNew(t *testing.T) {
	g := NewWithT(t)
	scheme := New()
	g.Expect(scheme.Recognizes(corev1.SchemeGroupVersion.WithKind("Namespace"))).To(BeTrue())
	g.Expect(scheme.Recognizes(admissionv1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicy"))).To(BeTrue())
	g.Expect(scheme.Recognizes(v1alpha1.GroupVersion.WithKind("NamespaceInitializerConfiguration"))).To(BeTrue())
	g.Expect(scheme.Recognizes(internalv1alpha1.GroupVersion.WithKind("NamespaceInitializerSet"))).To(BeTrue())
}
