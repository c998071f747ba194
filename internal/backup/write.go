// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Write writes objects as one stream of YAML documents.
func Write(w io.Writer, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		text, err := yaml.Marshal(object.Object)
		if err != nil {
			return fmt.Errorf("encoding %s %s/%s: %w",
				object.GetKind(), object.GetNamespace(), object.GetName(), err)
		}
		if _, err := fmt.Fprintf(w, "---\n%s", text); err != nil {
			return fmt.Errorf("writing the backup: %w", err)
		}
	}
	return nil
}
