// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
)

// restoreConditions restores the conditions of the operator as the complete policy does: in an initialized or
// terminating Namespace and, if an update omits all of them, in any other. Omitted conditions precede those of the
// request, whose order is kept: a client that repeats it changes nothing, and one that adds a condition finds it at the
// end.
func restoreConditions(before, after *corev1.Namespace) {
	if !wasInitialized(before) && slices.ContainsFunc(after.Status.Conditions, isOfInitialization) ||
		equality.Semantic.DeepEqual(before.Status.Conditions, after.Status.Conditions) {
		return
	}
	initializers := initialization.SplitNames(before.Annotations[v1alpha1.AnnotationInitializers])
	isProtected := func(condition corev1.NamespaceCondition) bool { return isProtectedCondition(condition, initializers) }
	counts := map[corev1.NamespaceConditionType]int{}
	for _, condition := range after.Status.Conditions {
		counts[condition.Type]++
	}
	var restored []corev1.NamespaceCondition
	for _, condition := range after.Status.Conditions {
		if !isProtected(condition) {
			restored = append(restored, condition)
			continue
		}
		// A list with two conditions of one type contains neither.
		if old := nsobject.FindCondition(before, condition.Type); old != nil && counts[condition.Type] == 1 {
			restored = append(restored, *old)
		}
	}
	var omitted []corev1.NamespaceCondition
	for _, condition := range before.Status.Conditions {
		isKept := slices.ContainsFunc(restored, func(k corev1.NamespaceCondition) bool { return k.Type == condition.Type })
		if isProtected(condition) && !isKept {
			omitted = append(omitted, condition)
		}
	}
	after.Status.Conditions = append(omitted, restored...)
}

// isOfInitialization reports whether a condition has a type of the operator or of an initializer.
func isOfInitialization(condition corev1.NamespaceCondition) bool {
	return isOwnCondition(condition) || strings.HasSuffix(string(condition.Type), v1alpha1.ConditionInitializedSuffix)
}

// isOwnCondition reports whether a condition has a type that only the operator writes, unlike those of initializers.
func isOwnCondition(condition corev1.NamespaceCondition) bool {
	switch condition.Type {
	case v1alpha1.ConditionInitializing, v1alpha1.ConditionReady, v1alpha1.ConditionStalled:
		return true
	}
	return strings.HasPrefix(string(condition.Type), v1alpha1.Prefix)
}

// isProtectedCondition reports whether only the operator and the initializers change a condition.
func isProtectedCondition(condition corev1.NamespaceCondition, initializers []string) bool {
	name, isOfInitializer := strings.CutSuffix(string(condition.Type), v1alpha1.ConditionInitializedSuffix)
	return isOwnCondition(condition) ||
		isOfInitializer && (slices.Contains(initializers, name) || initialization.IsSkipReason(condition.Reason))
}
