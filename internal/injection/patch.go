// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package injection

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// operation is an operation of a JSON patch. Operations change single keys, so that the webhooks need neither decode
// nor repeat the keys of users.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// computePatch returns the operations that change the labels, the annotations and the namespace finalizers. Without a
// spec, the Namespace gets one.
func computePatch(before, after *corev1.Namespace, hasSpec bool) []operation {
	operations := slices.Concat(
		patchMap("/metadata/labels", before.Labels, after.Labels),
		patchMap("/metadata/annotations", before.Annotations, after.Annotations))
	if slices.Equal(before.Spec.Finalizers, after.Spec.Finalizers) {
		return operations
	}
	if !hasSpec {
		return append(operations, operation{"add", "/spec", map[string]any{"finalizers": after.Spec.Finalizers}})
	}
	return append(operations, operation{"add", "/spec/finalizers", after.Spec.Finalizers})
}

func patchMap(path string, before, after map[string]string) []operation {
	if before == nil && len(after) > 0 {
		return []operation{{"add", path, after}}
	}
	var operations []operation
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if _, ok := after[key]; !ok {
			operations = append(operations, operation{Op: "remove", Path: path + "/" + escape(key)})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(after)) {
		if value, ok := before[key]; !ok || value != after[key] {
			operations = append(operations, operation{"add", path + "/" + escape(key), after[key]})
		}
	}
	return operations
}

// escape returns a key as part of a JSON pointer.
func escape(key string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(key) }
