// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IsExempt reports whether a Namespace is exempt from initialization.
func IsExempt(name, systemNamespace string) bool {
	return slices.Contains(Exempt(systemNamespace), name)
}

// RequiredNamespaces are the names of the Namespaces that the API server requires.
var RequiredNamespaces = []string{
	metav1.NamespaceDefault, corev1.NamespaceNodeLease, metav1.NamespacePublic, metav1.NamespaceSystem,
}

// Exempt returns the names of the Namespaces that are exempt from initialization: those that the API server requires,
// and the namespace of the operator.
func Exempt(systemNamespace string) []string {
	return slices.Concat(RequiredNamespaces, []string{systemNamespace})
}
