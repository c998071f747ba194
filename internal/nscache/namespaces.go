// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package nscache

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

const (
	// maxSize is the size in bytes of what users can write to a Namespace that is kept whole.
	maxSize = 16 << 10
	// maxFinalizers and maxConditions limit what is kept of a partial Namespace.
	maxFinalizers, maxConditions = 16, 4 << 10

	// annotationDigest exists only in the cache: the API server permits only one slash in a key.
	annotationDigest = v1alpha1.Prefix + "/digest"
)

// IsPartial reports whether the cache has omitted parts of a Namespace.
func IsPartial(namespace *corev1.Namespace) bool {
	return namespace.Annotations[annotationDigest] != ""
}

// BoundNamespace returns a transform of Namespaces that keeps the given annotations in any size, since only the
// operator writes them. An annotation that the admission policies do not protect must not be one of them.
func BoundNamespace(state []string) toolscache.TransformFunc {
	var shared sharedStrings
	return func(object any) (any, error) {
		namespace, ok := object.(*corev1.Namespace)
		if !ok || IsPartial(namespace) {
			return object, nil
		}
		namespace.ManagedFields = nil
		if sizeOf(namespace, state) <= maxSize {
			shared.share(namespace)
			return namespace, nil
		}
		return partial(namespace, state), nil
	}
}

// sizeOf returns the size of what users can write to a Namespace.
func sizeOf(namespace *corev1.Namespace, state []string) int {
	size := 0
	for key, value := range namespace.Labels {
		size += len(key) + len(value)
	}
	for key, value := range namespace.Annotations {
		if !slices.Contains(state, key) {
			size += len(key) + len(value)
		}
	}
	for _, finalizer := range namespace.Finalizers {
		size += len(finalizer)
	}
	for _, finalizer := range namespace.Spec.Finalizers {
		size += len(finalizer)
	}
	for _, owner := range namespace.OwnerReferences {
		size += len(owner.APIVersion) + len(owner.Kind) + len(owner.Name) + len(owner.UID)
	}
	for i := range namespace.Status.Conditions {
		size += conditionSize(&namespace.Status.Conditions[i])
	}
	return size
}

func conditionSize(condition *corev1.NamespaceCondition) int {
	return len(condition.Type) + len(condition.Reason) + len(condition.Message)
}

// partial returns what the cache keeps of a Namespace that is too large.
func partial(namespace *corev1.Namespace, state []string) *corev1.Namespace {
	kept := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{
			Name: namespace.Name, UID: namespace.UID, ResourceVersion: namespace.ResourceVersion,
			CreationTimestamp: namespace.CreationTimestamp, DeletionTimestamp: namespace.DeletionTimestamp,
			Labels: map[string]string{}, Annotations: map[string]string{annotationDigest: digestOf(namespace)},
			Finalizers: first(namespace.Finalizers),
		},
		Spec:   corev1.NamespaceSpec{Finalizers: first(namespace.Spec.Finalizers)},
		Status: corev1.NamespaceStatus{Phase: namespace.Status.Phase},
	}
	for _, key := range []string{
		v1alpha1.LabelInitializing, v1alpha1.LabelDeletionProtection, v1alpha1.LabelTemplate, corev1.LabelMetadataName,
	} {
		if value, ok := namespace.Labels[key]; ok {
			kept.Labels[key] = value
		}
	}
	for key, value := range namespace.Annotations {
		if slices.Contains(state, key) {
			kept.Annotations[key] = value
		}
	}
	size := 0
	for _, condition := range namespace.Status.Conditions {
		if !isOwnCondition(condition.Type) {
			continue
		}
		if size += conditionSize(&condition); size <= maxConditions {
			kept.Status.Conditions = append(kept.Status.Conditions, condition)
		}
	}
	return kept
}

func first[T any](finalizers []T) []T {
	return slices.Clone(finalizers[:min(len(finalizers), maxFinalizers)])
}

// isOwnCondition reports whether controllers of this project, or namespace controllers, set a condition.
func isOwnCondition(conditionType corev1.NamespaceConditionType) bool {
	name := string(conditionType)
	return conditionType == v1alpha1.ConditionInitializing ||
		conditionType == v1alpha1.ConditionReady || conditionType == v1alpha1.ConditionStalled ||
		strings.HasPrefix(name, "Namespace") || strings.HasPrefix(name, v1alpha1.Prefix) ||
		strings.HasSuffix(name, v1alpha1.ConditionInitializedSuffix)
}

// digestOf identifies the labels and annotations of a Namespace.
func digestOf(namespace *corev1.Namespace) string {
	hash := sha256.New()
	for _, entries := range []map[string]string{namespace.Labels, namespace.Annotations} {
		for _, key := range slices.Sorted(maps.Keys(entries)) {
			_, _ = fmt.Fprintf(hash, "%q=%q\n", key, entries[key])
		}
		_, _ = hash.Write([]byte("\n"))
	}
	return hex.EncodeToString(hash.Sum(nil)[:16])
}

// StripMetadata is a transform that keeps the names, labels and versions of objects of which only the metadata is
// watched.
func StripMetadata(object any) (any, error) {
	metadata, ok := object.(*metav1.PartialObjectMetadata)
	if ok {
		metadata.Annotations, metadata.ManagedFields, metadata.OwnerReferences = nil, nil, nil
	}
	return object, nil
}
