// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// operation is an operation of a JSON patch. Operations change single keys, so that the webhooks need neither decode
// nor repeat the keys of users.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// computePatch returns the operations that change the labels, the annotations, the namespace finalizers and the
// conditions. Without a spec or a status, the Namespace gets one.
func computePatch(before, after *corev1.Namespace, has parents) []operation {
	operations := slices.Concat(
		patchMap("/metadata/labels", before.Labels, after.Labels),
		patchMap("/metadata/annotations", before.Annotations, after.Annotations))
	if !slices.Equal(before.Spec.Finalizers, after.Spec.Finalizers) {
		operations = append(operations, patchList("/spec", "finalizers", has.spec, after.Spec.Finalizers))
	}
	if !equality.Semantic.DeepEqual(before.Status.Conditions, after.Status.Conditions) {
		operations = append(operations, patchList("/status", "conditions", has.status, after.Status.Conditions))
	}
	return operations
}

// parents are the parts of a Namespace that exist in JSON.
type parents struct{ spec, status bool }

func patchList(parent, field string, hasParent bool, list any) operation {
	if !hasParent {
		return operation{"add", parent, map[string]any{field: list}}
	}
	return operation{"add", parent + "/" + field, list}
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
