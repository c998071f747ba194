// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"fmt"
	"strings"

	"github.com/mitchellh/go-wordwrap"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/shell"
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

// Shorten returns text as one line of printable characters. If the text is longer than the given
// number of characters, it removes words at the end.
func Shorten(text string, length int) string {
	const ellipsis = " ..."
	text = printable.Escape(strings.Join(strings.Fields(text), " "))
	if len([]rune(text)) <= length {
		return text
	}
	words := strings.Fields(text)
	short, runes := words[0], len([]rune(words[0]))
	for _, word := range words[1:] {
		if runes += 1 + len([]rune(word)); runes > length-len(ellipsis) {
			break
		}
		short += " " + word
	}
	return short + ellipsis
}

// Continuation is the indentation of the second and further lines of a message.
const Continuation = "  "

// Wrap wraps text to the given number of columns, and indents all lines except the first, so that
// they do not look like separate messages.
func Wrap(text string, columns int) string {
	return wrapLines(text, columns, func(line string) (string, string) { return line, "" })
}

// WrapCommand is like Wrap, except that a command at the end of a line, after a colon, gets its own line, so
// that users can copy it. It must not be used for text that other users can choose, in which a command would
// look like a proposal of the plugin.
func WrapCommand(text string, columns int) string {
	return wrapLines(text, columns, func(line string) (string, string) {
		at := strings.LastIndex(line, ": "+shell.Program)
		if at < 0 || len([]rune(line)) <= columns || !shell.IsSafe(line[at+2:]) {
			return line, ""
		}
		return line[:at+1], line[at+2:]
	})
}

func wrapLines(text string, columns int, cutCommand func(line string) (string, string)) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		line, command := cutCommand(line)
		lines = append(lines, wrap(line, columns-len(Continuation))...)
		if command != "" {
			lines = append(lines, command)
		}
	}
	return strings.Join(lines, "\n"+Continuation)
}

// wrap splits text into lines with at most the given number of columns. It does not split words. No line but
// the first starts with a command, which would look like a proposal of the plugin.
func wrap(text string, columns int) []string {
	const space, noBreakSpace = " ", "\u00a0"
	text = strings.ReplaceAll(text, space+shell.Program, noBreakSpace+shell.Program)
	wrapped := wordwrap.WrapString(text, uint(max(columns, minWrapWidth)))
	return strings.Split(strings.ReplaceAll(wrapped, noBreakSpace+shell.Program, space+shell.Program), "\n")
}
