// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package nsobject

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

// IsProtected reports whether a Namespace has the label for deletion protection, with any value, as in
// config/protection/protection.yaml. The operator deletes no such Namespace, even if the policy is not installed.
func IsProtected(namespace *corev1.Namespace) bool {
	_, ok := namespace.Labels[v1alpha1.LabelDeletionProtection]
	return ok
}

// ProtectionMessage returns why the operator does not delete a Namespace and the command that allows the deletion. It
// returns "" if the Namespace is not protected.
func ProtectionMessage(namespace *corev1.Namespace) string {
	if !IsProtected(namespace) {
		return ""
	}
	return fmt.Sprintf("the operator deletes no namespace with the label %s; to allow its deletion, run: %s",
		v1alpha1.LabelDeletionProtection, ProtectionRemovalCommand(namespace.Name))
}

// ProtectionRemovalCommand returns the command that allows the deletion of a Namespace.
func ProtectionRemovalCommand(name string) string {
	return shell.Command("kubectl label namespace %s "+v1alpha1.LabelDeletionProtection+"-", name)
}
