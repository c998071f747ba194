// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"fmt"
	"strings"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// Sentence capitalizes a phrase and adds a period unless the phrase already ends with a punctuation
// mark.
func Sentence(phrase string) string {
	text := Capitalize(phrase)
	if text == "" || strings.ContainsAny(text[len(text)-1:], ".?!") {
		return text
	}
	return text + "."
}

// Capitalize returns a phrase with its first letter in upper case.
func Capitalize(phrase string) string {
	if phrase == "" {
		return ""
	}
	first := string([]rune(phrase)[:1])
	return strings.ToUpper(first) + strings.TrimPrefix(phrase, first)
}

// SummarizeErrors returns the first error and the number of further errors.
func SummarizeErrors(texts []string) string {
	if len(texts) == 1 {
		return texts[0]
	}
	return fmt.Sprintf("%s; and %s", texts[0], printable.Count(len(texts)-1, "more error"))
}

// ListObjects lists objects in the format of kubectl arguments, and the number of objects that are
// not included. It adds the namespace to the names of objects in other namespaces.
func ListObjects(objects []diagnosis.Object, total int, namespace string) string {
	names := make([]string, 0, len(objects)+1)
	for _, object := range objects {
		name := object.Resource + "/" + printable.Name(object.Name)
		if object.Namespace != "" && object.Namespace != namespace {
			name += " in namespace " + object.Namespace
		}
		names = append(names, name)
	}
	if total > len(objects) {
		names = append(names, fmt.Sprintf("and %d more", total-len(objects)))
	}
	return strings.Join(names, ", ")
}

// Clip returns text as one line of printable characters, truncated to the given width.
func Clip(text string, width int) string {
	text = printable.Escape(strings.Join(strings.Fields(text), " "))
	runes := []rune(text)
	if len(runes) <= width {
		return text
	}
	return string(runes[:max(0, width-3)]) + "..."
}
