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

// Write writes objects as one stream of YAML documents.
func Write(w io.Writer, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		document, err := json.Marshal(object.Object)
		if err == nil {
			document, err = YAML(document)
		}
		if err != nil {
			return fmt.Errorf("encoding %s %s/%s: %w",
				object.GetKind(), object.GetNamespace(), object.GetName(), err)
		}
		if _, err := fmt.Fprintf(w, "---\n%s", document); err != nil {
			return fmt.Errorf("writing the backup: %w", err)
		}
	}
	return nil
}

// YAML converts a JSON document to YAML in which all characters are printable. YAML has characters
// which the library refuses to write, or which end lines so that the text comes back as another
// one, or swallows the document behind it; terminals and editors obey or hide others. A document
// with one of them stays JSON, which is YAML too, and in which they can be escaped.
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

// longKey matches keys which YAML takes only after a question mark: those of more than 1024
// characters are among them.
var longKey = regexp.MustCompile(`(?m)^( *)("(?:[^"\\]|\\.){100,}":)`)

// isUnsafe reports whether JSON has to stay JSON. The separators of lines and paragraphs are
// escaped in it, and a key of two angle brackets merges maps.
func isUnsafe(text string) bool {
	return !printable.IsDocument(text) || strings.Contains(text, `\u2028`) ||
		strings.Contains(text, `\u2029`) || strings.Contains(text, `"\u003c\u003c":`)
}
