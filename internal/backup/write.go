// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// Write writes objects as a stream of YAML documents.
func Write(w io.Writer, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		document, err := json.Marshal(object.Object)
		if err == nil {
			document, err = YAML(document)
		}
		if err != nil {
			return fmt.Errorf("failed to encode %s %s/%s: %w",
				object.GetKind(), object.GetNamespace(), object.GetName(), err)
		}
		if _, err := fmt.Fprintf(w, "---\n%s", document); err != nil {
			return fmt.Errorf("failed to write the backup: %w", err)
		}
	}
	return nil
}

// YAML converts a JSON document to YAML with only printable characters. Of the other characters,
// the YAML library cannot write some, YAML treats some as line breaks, and some control terminals
// and editors. A document with such a character stays JSON, which is valid YAML and can escape the
// character.
func YAML(document []byte) ([]byte, error) {
	if !isUnsafe(string(document)) {
		return yaml.JSONToYAML(document)
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, bytes.TrimSpace(document), "", "  "); err != nil {
		return nil, err
	}
	return []byte(longKey.ReplaceAllString(printable.YAML(indented.String()), "$1? $2") + "\n"), nil
}

// longKey matches all keys with more than 1024 characters, and some shorter ones. YAML requires a
// question mark before keys with more than 1024 characters.
var longKey = regexp.MustCompile(`(?m)^( *)("(?:[^"\\]|\\.){100,}":)`)

// isUnsafe reports whether a document must stay JSON. This includes documents with escaped line or
// paragraph separators, or with the key <<, which merges maps in YAML.
func isUnsafe(text string) bool {
	return !printable.IsDocument(text) || strings.Contains(text, `\u2028`) ||
		strings.Contains(text, `\u2029`) || strings.Contains(text, `"\u003c\u003c":`)
}
