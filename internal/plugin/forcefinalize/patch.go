// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package forcefinalize

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/types"
)

// jsonPatchOperation is one operation of a JSON patch (RFC 6902).
type jsonPatchOperation struct {
	Operation string `json:"op"`
	Path      string `json:"path"`
	Value     string `json:"value,omitempty"`
}

// removalPatch returns a JSON patch that removes all occurrences of a finalizer. The patch fails if
// the object has another UID or resourceVersion.
func removalPatch(uid types.UID, resourceVersion string, finalizers []string, finalizer string) ([]byte, error) {
	operations := []jsonPatchOperation{
		{"test", "/metadata/uid", string(uid)},
		{"test", "/metadata/resourceVersion", resourceVersion},
	}
	// Iterate backward, because a removal changes the indices of the following entries.
	for i, one := range slices.Backward(finalizers) {
		if one == finalizer {
			path := "/metadata/finalizers/" + strconv.Itoa(i)
			operations = append(operations, jsonPatchOperation{"test", path, finalizer},
				jsonPatchOperation{"remove", path, ""})
		}
	}
	patch, err := json.Marshal(operations)
	if err != nil {
		return nil, fmt.Errorf("failed to encode the patch: %w", err)
	}
	return patch, nil
}
