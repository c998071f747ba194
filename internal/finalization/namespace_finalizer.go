// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// HasFinalizer reports whether a Namespace has the given namespace finalizer in spec.finalizers.
func HasFinalizer(namespace *corev1.Namespace, finalizer corev1.FinalizerName) bool {
	return slices.Contains(namespace.Spec.Finalizers, finalizer)
}

// OtherFinalizers returns the namespace finalizers other than the given one, in the original order.
func OtherFinalizers(namespace *corev1.Namespace, finalizer corev1.FinalizerName) []corev1.FinalizerName {
	return slices.DeleteFunc(slices.Clone(namespace.Spec.Finalizers), func(other corev1.FinalizerName) bool {
		return other == finalizer
	})
}

// ParseFinalizer returns a namespace finalizer, or an error if the API server would reject it. A valid
// namespace finalizer is "kubernetes" or a qualified name with a domain prefix.
func ParseFinalizer(text string) (corev1.FinalizerName, error) {
	finalizer := corev1.FinalizerName(text)
	if finalizer == corev1.FinalizerKubernetes {
		return finalizer, nil
	}
	problems := validation.IsQualifiedName(text)
	if len(problems) == 0 && !strings.Contains(text, "/") {
		problems = []string{finalizerNeedsDomain}
	}
	if len(problems) > 0 {
		return "", fmt.Errorf(invalidFinalizer, text, corev1.FinalizerKubernetes, strings.Join(problems, "; "))
	}
	return finalizer, nil
}

// RefusalReason returns the reason why the operator must not delete the content of a terminating
// Namespace, or "" if there is none. ownNamespace is the namespace that the operator runs in, or "".
func RefusalReason(namespace *corev1.Namespace, ownNamespace string) string {
	switch namespace.Name {
	case metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic:
		return fmt.Sprintf(refusalSystemNamespace, namespace.Name)
	case ownNamespace:
		return fmt.Sprintf(refusalOwnNamespace, namespace.Name)
	default:
		return ""
	}
}
