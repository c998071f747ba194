// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RequiredNamespaces are the names of the Namespaces that the API server requires.
var RequiredNamespaces = []string{
	metav1.NamespaceDefault, corev1.NamespaceNodeLease, metav1.NamespacePublic, metav1.NamespaceSystem,
}

// Exempt returns the names of the Namespaces that are exempt from initialization: those that the API server requires,
// the namespace of the operator, and that of the sources of copies. No template and no initializer gives the users who
// create namespaces permissions in the latter, whose objects are copied to all others.
func Exempt(systemNamespace, sourceNamespace string) []string {
	names := slices.Concat(RequiredNamespaces, []string{systemNamespace, sourceNamespace})
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}
