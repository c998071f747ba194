// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package protection reports whether a Namespace is protected from deletion. The admission policy
// in config/protection denies the deletion. The operator and the plugin respect the label even if
// the policy is not installed.
package protection

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

// IsProtected reports whether a Namespace has the label, with any value, as in
// config/protection/protection.yaml.
func IsProtected(namespace *corev1.Namespace) bool {
	_, ok := namespace.Labels[v1alpha1.LabelDeletionProtection]
	return ok
}

// Message returns why a Namespace must not be deleted and the command that allows the deletion. It
// returns "" if the Namespace is not protected.
func Message(namespace *corev1.Namespace) string {
	if !IsProtected(namespace) {
		return ""
	}
	return fmt.Sprintf("the label %s protects the namespace; to allow its deletion, run: %s",
		v1alpha1.LabelDeletionProtection, RemovalCommand(namespace.Name))
}

// RemovalCommand returns the command that allows the deletion of a Namespace.
func RemovalCommand(name string) string {
	return shell.Command("kubectl label namespace %s "+v1alpha1.LabelDeletionProtection+"-", name)
}
