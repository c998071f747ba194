// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Write writes objects as one stream of YAML documents.
func Write(w io.Writer, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		text, err := encode(object.Object)
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

// encode writes one document. YAML has characters which the library refuses to write, or
// which end lines so that the text comes back as another one, or swallows the document
// behind it. An object with one of them becomes JSON, which is YAML too, and in which they
// can be escaped.
func encode(object map[string]any) ([]byte, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	if !isUnsafe(string(text)) {
		return yaml.JSONToYAML(text)
	}
	var escaped strings.Builder
	for _, char := range string(text) {
		if isUnsafeCharacter(char) {
			fmt.Fprintf(&escaped, `\u%04x`, char)
		} else {
			escaped.WriteRune(char)
		}
	}
	return []byte(escaped.String() + "\n"), nil
}

// isUnsafe tells whether the JSON of an object does not come back from YAML as it was. The
// separators of lines and paragraphs are escaped in it, and a key of two angle brackets
// merges maps.
func isUnsafe(text string) bool {
	return strings.ContainsFunc(text, isUnsafeCharacter) || strings.Contains(text, `\u2028`) ||
		strings.Contains(text, `\u2029`) || strings.Contains(text, `"\u003c\u003c":`)
}

// isUnsafeCharacter is for those that JSON leaves as they are, in strings only.
func isUnsafeCharacter(char rune) bool { return char >= 0x7f && char <= 0x9f || char == 0xfeff }
