// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalizer

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// reasonReleased is the reason of the condition once the token is off.
const reasonReleased = "Released"

// has tells whether a token is in spec.finalizers.
func has(namespace *corev1.Namespace, token corev1.FinalizerName) bool {
	return slices.Contains(namespace.Spec.Finalizers, token)
}

// without returns the tokens but one, in their order. A token that is listed twice goes as a
// whole: it would hold the Namespace for ever.
func without(namespace *corev1.Namespace, token corev1.FinalizerName) []corev1.FinalizerName {
	return slices.DeleteFunc(slices.Clone(namespace.Spec.Finalizers),
		func(other corev1.FinalizerName) bool { return other == token })
}
