// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package protection tells whether a Namespace is protected from deletion, for all of this
// project who delete one. The API server refuses it anyhow where the policy in
// config/protection is installed; what has the label is left alone without it as well.
package protection

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

// IsProtected reports whether a Namespace has the label. Its value does not matter, as in
// config/protection/protection.yaml.
func IsProtected(namespace *corev1.Namespace) bool {
	_, isProtected := namespace.Labels[v1alpha1.LabelDeletionProtection]
	return isProtected
}

// WhyNotDelete returns why a Namespace must not be deleted, with what to do about it, or ""
// where it is not protected.
func WhyNotDelete(namespace *corev1.Namespace) string {
	if !IsProtected(namespace) {
		return ""
	}
	return fmt.Sprintf("label %s protects it; to let it go, run: %s",
		v1alpha1.LabelDeletionProtection, RemovalCommand(namespace.Name))
}

// RemovalCommand returns the command that removes the protection from a Namespace.
func RemovalCommand(name string) string {
	return shell.Command("kubectl label namespace %s "+v1alpha1.LabelDeletionProtection+"-", name)
}
