// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package injection

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
)

// origin are the annotations that a write never removes by leaving them out, progress those that it can remove only
// when no initializers are pending.
var (
	origin = []string{
		v1alpha1.AnnotationInitializers, v1alpha1.AnnotationRequestedBy, v1alpha1.AnnotationSelectedTemplates,
		v1alpha1.AnnotationTemplates,
	}
	progress = []string{v1alpha1.AnnotationPendingInitializers, v1alpha1.AnnotationInitializationResult}
)

// Complete changes the result of an update of a Namespace as the complete policy does. The user of the update may
// initialize the Namespace if the API server allows the verb "initialize".
func Complete(before, after *corev1.Namespace, mayInitialize bool) {
	if !isSelected(before, after) {
		return
	}
	isPending := len(initialization.SplitNames(before.Annotations[v1alpha1.AnnotationPendingInitializers])) > 0
	completes := isPending && mayInitialize && isEmpty(after, v1alpha1.AnnotationPendingInitializers) &&
		!initialization.IsFailure(resultOf(before, after))
	restore(before, after, origin...)
	if isPending && !completes {
		restore(before, after, progress...)
	}
	// Empty annotations are removed, so that a client can repeat the write that completed the initialization.
	for _, key := range progress {
		isRemovable := key == v1alpha1.AnnotationInitializationResult || !isPending
		if completes || isEmpty(after, key) && isRemovable {
			delete(after.Annotations, key)
		}
	}
	if isEmpty(after, v1alpha1.AnnotationTemplates) {
		delete(after.Annotations, v1alpha1.AnnotationTemplates)
	}
	if completes {
		delete(after.Labels, v1alpha1.LabelInitializing)
	} else if isPending {
		restoreLabel(before, after)
	}
}

func restoreLabel(before, after *corev1.Namespace) {
	label, wasLabeled := before.Labels[v1alpha1.LabelInitializing]
	if _, isLabeled := after.Labels[v1alpha1.LabelInitializing]; wasLabeled && !isLabeled {
		setLabel(after, v1alpha1.LabelInitializing, label)
	}
}

// CompleteAfterPolicy is Complete for users that may initialize the Namespace, if the policy can have run before. It
// does not restore what the policy can have removed: the list and the label of a completed initialization, and empty
// annotations. While other API servers do not enforce the policy, the guard policy decides about these.
func CompleteAfterPolicy(before, after *corev1.Namespace) {
	before = before.DeepCopy()
	removable := []string{v1alpha1.AnnotationPendingInitializers, v1alpha1.AnnotationTemplates}
	if !isEmpty(after, v1alpha1.AnnotationPendingInitializers) { // Otherwise, the policy has not removed a result.
		removable = append(removable, v1alpha1.AnnotationInitializationResult)
	}
	for _, key := range removable {
		if _, ok := after.Annotations[key]; !ok {
			delete(before.Annotations, key)
		}
	}
	Complete(before, after, true)
}

// isSelected is the match condition of the policy.
func isSelected(before, after *corev1.Namespace) bool {
	_, wasLabeled := before.Labels[v1alpha1.LabelInitializing]
	_, isLabeled := after.Labels[v1alpha1.LabelInitializing]
	return wasLabeled && !isLabeled ||
		isEmpty(after, v1alpha1.AnnotationPendingInitializers) || isEmpty(after, v1alpha1.AnnotationTemplates) ||
		slices.ContainsFunc(slices.Concat(origin, progress), func(key string) bool {
			return before.Annotations[key] != "" && after.Annotations[key] == ""
		})
}

// resultOf returns the result after an update that can leave it out.
func resultOf(before, after *corev1.Namespace) string {
	if result, ok := after.Annotations[v1alpha1.AnnotationInitializationResult]; ok {
		return result
	}
	return before.Annotations[v1alpha1.AnnotationInitializationResult]
}

// isEmpty reports whether a Namespace has an annotation without a value.
func isEmpty(namespace *corev1.Namespace, key string) bool {
	value, ok := namespace.Annotations[key]
	return ok && value == ""
}

// restore adds annotations that an update has left out.
func restore(before, after *corev1.Namespace, keys ...string) {
	for _, key := range keys {
		if _, ok := after.Annotations[key]; !ok && before.Annotations[key] != "" {
			setAnnotation(after, key, before.Annotations[key])
		}
	}
}
