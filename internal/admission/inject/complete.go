// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
)

// Complete changes the labels and annotations of an updated Namespace as the complete policy does. The user of the
// update may initialize the Namespace if the API server allows the verb "initialize".
func Complete(before, after *corev1.Namespace, mayInitialize bool) {
	restoreLocked(before, after)
	if !mayInitialize && wasInitialized(before) {
		restoreRecords(before, after)
	}
	if isSelected(before, after) {
		completeState(before, after, mayInitialize)
	}
}

func completeState(before, after *corev1.Namespace, mayInitialize bool) {
	isPending := len(initialization.SplitNames(before.Annotations[v1alpha1.AnnotationPendingInitializers])) > 0
	completes := isPending && mayInitialize && isEmpty(after, v1alpha1.AnnotationPendingInitializers) &&
		!initialization.IsFailure(resultOf(before, after))
	restore(before, after, initialization.OriginAnnotations)
	restore(before, after, initialization.RecordAnnotations)
	completeTurn(before, after, isPending)
	if isPending && !completes {
		restore(before, after, initialization.ProgressAnnotations)
	}
	// Empty annotations are removed, so that a client can repeat the write that completed the initialization.
	for _, key := range initialization.ProgressAnnotations {
		isRemovable := key == v1alpha1.AnnotationInitializationResult || !isPending
		if completes || isEmpty(after, key) && isRemovable {
			delete(after.Annotations, key)
		}
	}
	maps.DeleteFunc(after.Annotations, func(key, value string) bool {
		return value == "" && slices.Contains(initialization.RecordAnnotations, key)
	})
	if completes {
		delete(after.Labels, v1alpha1.LabelInitializing)
	} else if isPending {
		restoreOmitted(before.Labels, &after.Labels, []string{v1alpha1.LabelInitializing})
	}
}

// completeTurn removes the start of a turn in the write that removes the first initializer.
func completeTurn(before, after *corev1.Namespace, isPending bool) {
	const key = v1alpha1.AnnotationTurnStartedAt
	if isPending && endsTurn(before, after) && after.Annotations[key] == before.Annotations[key] {
		delete(after.Annotations, key)
	}
}

// restoreLocked restores labels and annotations that an update omits although a template locks them.
func restoreLocked(before, after *corev1.Namespace) {
	labels, annotations := initialization.LockedKeys(before)
	restoreOmitted(before.Labels, &after.Labels, labels)
	restoreOmitted(before.Annotations, &after.Annotations, annotations)
}

// restoreOmitted adds values that an update has left out.
func restoreOmitted(before map[string]string, after *map[string]string, keys []string) {
	for _, key := range keys {
		if value, ok := before[key]; ok && !has(*after, key) {
			put(after, key, value)
		}
	}
}

func has(values map[string]string, key string) bool {
	_, ok := values[key]
	return ok
}

// restoreRecords restores the records of the operator in an update by a user who may not initialize the Namespace.
func restoreRecords(before, after *corev1.Namespace) {
	for _, key := range initialization.RecordAnnotations {
		if value, ok := before.Annotations[key]; ok {
			put(&after.Annotations, key, value)
		} else {
			delete(after.Annotations, key)
		}
	}
}

// wasInitialized reports whether a Namespace is initialized or terminating before an update.
func wasInitialized(before *corev1.Namespace) bool {
	return !has(before.Labels, v1alpha1.LabelInitializing) || before.DeletionTimestamp != nil
}

// completeAfterPolicy is Complete for users that may initialize the Namespace, if the policy can have run before. It
// does not restore what the policy can have removed: the list and the label of a completed initialization, and empty
// annotations. While other API servers do not enforce the policy, the guard policy decides about these.
func completeAfterPolicy(before, after *corev1.Namespace) {
	before = before.DeepCopy()
	removable := append([]string{v1alpha1.AnnotationPendingInitializers}, initialization.RecordAnnotations...)
	if !isEmpty(after, v1alpha1.AnnotationPendingInitializers) { // Otherwise, the policy has not removed a result.
		removable = append(removable, v1alpha1.AnnotationInitializationResult)
	}
	for _, key := range removable {
		if !has(after.Annotations, key) {
			delete(before.Annotations, key)
		}
	}
	Complete(before, after, true)
}

// isSelected is the match condition of the policy, without the parts about locked keys and records.
func isSelected(before, after *corev1.Namespace) bool {
	const label = v1alpha1.LabelInitializing
	return has(before.Labels, label) && !has(after.Labels, label) ||
		has(after.Annotations, v1alpha1.AnnotationTurnStartedAt) && hasListChanged(before, after) ||
		slices.ContainsFunc(initialization.StateAnnotations, func(key string) bool {
			isOrigin := slices.Contains(initialization.OriginAnnotations, key)
			return isEmpty(after, key) && !isOrigin || before.Annotations[key] != "" && after.Annotations[key] == ""
		})
}

func hasListChanged(before, after *corev1.Namespace) bool {
	const key = v1alpha1.AnnotationPendingInitializers
	return has(before.Annotations, key) != has(after.Annotations, key) || before.Annotations[key] != after.Annotations[key]
}

// endsTurn reports whether an update removes the first initializer from the list.
func endsTurn(before, after *corev1.Namespace) bool {
	list, ok := after.Annotations[v1alpha1.AnnotationPendingInitializers]
	first, _, _ := strings.Cut(list, ",")
	previous, _, _ := strings.Cut(before.Annotations[v1alpha1.AnnotationPendingInitializers], ",")
	return ok && first != previous
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

// restore adds annotations with a value that an update has left out.
func restore(before, after *corev1.Namespace, keys []string) {
	restoreOmitted(before.Annotations, &after.Annotations, slices.DeleteFunc(slices.Clone(keys),
		func(key string) bool { return before.Annotations[key] == "" }))
}
