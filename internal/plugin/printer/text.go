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
		if at < 0 || len([]rune(line)) <= columns-len(Continuation) || !shell.IsSafe(line[at+2:]) {
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

// minWrapWidth is the minimum width to which text is wrapped. Narrower columns are harder to read
// than lines that the terminal wraps.
const minWrapWidth = 30

// Branch is a node of a tree.
type Branch struct {
	// Label precedes the text. A branch without a label is an element of a list.
	Label string
	Text  string
	// Paint colors the label or, without a label, the text. A nil function applies no color.
	Paint func(string) string
	// IsVerbatim prevents wrapping. It is used for commands that users copy.
	IsVerbatim bool
	Children   []Branch
}

// RenderTree renders branches as a tree that is wrapped to the given number of columns. Branches are
// indented below their parent. Lines have no other prefix, so that users can copy whole lines.
func RenderTree(branches []Branch, columns int) string {
	var out strings.Builder
	writeBranches(&out, branches, "", columns)
	return out.String()
}

func writeBranches(out *strings.Builder, branches []Branch, indent string, columns int) {
	for i := range branches {
		first, below := indent, indent+Continuation
		if branches[i].Label == "" && !branches[i].IsVerbatim {
			first += "- "
		}
		for _, line := range branches[i].lines(columns - len(below)) {
			out.WriteString(strings.TrimRight(first+line, " ") + "\n")
			first = below
		}
		writeBranches(out, branches[i].Children, below, columns)
	}
}

// lines returns the label and the text of a branch, first wrapped and then colored.
func (b *Branch) lines(columns int) []string {
	text, label := printable.Escape(b.Text), printable.Escape(b.Label)
	if label != "" {
		label += ":"
		text = strings.TrimSuffix(label+" "+text, " ")
	}
	lines := []string{text}
	if !b.IsVerbatim {
		lines = wrap(text, columns)
	}
	if b.Paint == nil {
		return lines
	}
	for i, line := range lines {
		switch {
		case label == "":
			lines[i] = b.Paint(line)
		case i == 0 && strings.HasPrefix(line, label):
			lines[i] = b.Paint(label) + strings.TrimPrefix(line, label)
		}
	}
	return lines
}
