// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// YAML converts a JSON document to YAML if it contains only printable characters. A document with
// other characters stays JSON, which is valid YAML and can escape them. The YAML library cannot
// write some of these characters, some are line breaks in YAML, and some control terminals and
// editors.
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

// isUnsafe reports whether a document must stay JSON. Escaped line separators, escaped paragraph
// separators and the key <<, which merges maps in YAML, are also unsafe.
func isUnsafe(text string) bool {
	return !printable.IsDocument(text) || strings.Contains(text, `\u2028`) ||
		strings.Contains(text, `\u2029`) || strings.Contains(text, `"\u003c\u003c":`)
}
