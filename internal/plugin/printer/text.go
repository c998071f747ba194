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

// Wrap wraps text to MaxTextWidth, and indents all lines except the first, so that they do not look like separate
// messages.
func Wrap(text string) string { return wrapLines(text, MaxTextWidth, false) }

// WrapIndented is like Wrap, with an indentation before each line.
func WrapIndented(text, indent string) string {
	return indent + strings.ReplaceAll(wrapLines(text, MaxTextWidth-len(indent), false), "\n", "\n"+indent)
}

// WrapCommand is like Wrap, except that a command at the end of a line, after a colon, gets its own line, so
// that users can copy it. It must not be used for text that other users can choose, in which a command would
// look like a proposal of the plugin.
func WrapCommand(text string) string { return wrapLines(text, MaxTextWidth, true) }

func wrapLines(text string, columns int, separatesCommands bool) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		at := strings.LastIndex(line, ": "+shell.Program)
		if separatesCommands && at >= 0 && len([]rune(line)) > columns-len(Continuation) && shell.IsSafe(line[at+2:]) {
			lines = append(append(lines, wrap(line[:at+1], columns-len(Continuation))...), line[at+2:])
			continue
		}
		lines = append(lines, wrap(line, columns-len(Continuation))...)
	}
	return strings.Join(lines, "\n"+Continuation)
}

// wrap splits text into lines with at most the given number of columns. It does not split words. No line but
// the first starts with a command, which would look like a proposal of the plugin.
func wrap(text string, columns int) []string {
	const space, noBreakSpace = " ", "\u00a0"
	text = strings.ReplaceAll(text, space+shell.Program, noBreakSpace+shell.Program)
	wrapped := wordwrap.WrapString(text, uint(columns))
	return strings.Split(strings.ReplaceAll(wrapped, noBreakSpace+shell.Program, space+shell.Program), "\n")
}

// Branch is a node of a tree.
type Branch struct {
	// Label precedes the text. A branch without a label is an element of a list.
	Label string
	Text  string
	// IsVerbatim prevents wrapping. It is used for commands that users copy.
	IsVerbatim bool
	Children   []Branch
}

// RenderTree renders branches as a tree. Branches are indented below their parent. Lines have no other prefix, so that
// users can copy whole lines.
func RenderTree(branches []Branch) string {
	var out strings.Builder
	writeBranches(&out, branches, "")
	return out.String()
}

func writeBranches(out *strings.Builder, branches []Branch, indent string) {
	for i := range branches {
		first, below := indent, indent+Continuation
		if branches[i].Label == "" && !branches[i].IsVerbatim {
			first += "- "
		}
		for _, line := range branches[i].lines(MaxTextWidth - len(below)) {
			out.WriteString(strings.TrimRight(first+line, " ") + "\n")
			first = below
		}
		writeBranches(out, branches[i].Children, below)
	}
}

// lines returns the label and the text of a branch.
func (b *Branch) lines(columns int) []string {
	text := printable.Escape(b.Text)
	if b.Label != "" {
		text = strings.TrimSuffix(printable.Escape(b.Label)+": "+text, " ")
	}
	if b.IsVerbatim {
		return []string{text}
	}
	return wrap(text, columns)
}
