// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// IsEqual reports whether two versions of an object differ only in metadata that the API server and the operator add.
func IsEqual(a, b *unstructured.Unstructured) bool {
	return apiequality.Semantic.DeepEqual(WithoutOwnKeys(a), WithoutOwnKeys(b))
}

// WithoutOwnKeys removes the labels and annotations of the operator, and the metadata that WithoutServerFields removes.
func WithoutOwnKeys(object *unstructured.Unstructured) map[string]any {
	object.SetLabels(without(object.GetLabels(), v1alpha1.LabelManagedByTemplate, v1alpha1.LabelLocked))
	object.SetAnnotations(without(object.GetAnnotations(), v1alpha1.AnnotationNamespaceUID))
	return WithoutServerFields(object)
}

// without removes keys from values. If no key remains, it returns nil.
func without(values map[string]string, keys ...string) map[string]string {
	maps.DeleteFunc(values, func(key, _ string) bool { return slices.Contains(keys, key) })
	if len(values) == 0 {
		return nil
	}
	return values
}

// WithoutServerFields removes the metadata that the API server changes in each write.
func WithoutServerFields(object *unstructured.Unstructured) map[string]any {
	for _, field := range []string{"managedFields", "resourceVersion", "generation"} {
		unstructured.RemoveNestedField(object.Object, "metadata", field)
	}
	return object.Object
}
