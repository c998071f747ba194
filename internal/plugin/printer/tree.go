// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"strings"

	"github.com/mitchellh/go-wordwrap"

	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// minWrapWidth is the smallest width that text is wrapped to. Narrower columns are harder to
// read than lines that the terminal wraps.
const minWrapWidth = 30

// Branch is a node of a tree.
type Branch struct {
	// Label precedes the text, if it is not empty.
	Label string
	Text  string
	// Paint colors the label or, if there is none, the text. It may be nil.
	Paint func(string) string
	// IsVerbatim keeps the text on one line, for commands that users copy.
	IsVerbatim bool
	Children   []Branch
}

// RenderTree renders branches, wrapped to a number of columns, or not wrapped if it is 0.
func RenderTree(branches []Branch, columns int) string {
	var out strings.Builder
	writeBranches(&out, branches, "", columns)
	return out.String()
}

func writeBranches(out *strings.Builder, branches []Branch, indent string, columns int) {
	for i := range branches {
		tick, below := "├── ", "│   "
		if i == len(branches)-1 {
			tick, below = "└── ", "    "
		}
		below = indent + below
		// The same stroke connects wrapped lines with the children.
		hanging := below
		if len(branches[i].Children) > 0 {
			hanging += "│   "
		} else {
			hanging += "    "
		}
		available := columns
		if columns > 0 {
			available = max(columns-len([]rune(hanging)), minWrapWidth)
		}
		first := indent + tick
		for _, line := range branches[i].lines(available) {
			out.WriteString(strings.TrimRight(first+line, " ") + "\n")
			first = hanging
		}
		writeBranches(out, branches[i].Children, below, columns)
	}
}

// lines returns the text of a branch, which is wrapped before it is colored.
func (b *Branch) lines(columns int) []string {
	text, label := printable.Escape(b.Text), printable.Escape(b.Label)
	if label != "" && text != "" {
		label += ":"
		text = label + " " + text
	} else if label != "" {
		text = label
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

// wrap breaks text into lines of a number of columns. If that is 0 it only splits the lines.
func wrap(text string, columns int) []string {
	if columns > 0 {
		text = wordwrap.WrapString(text, uint(columns))
	}
	return strings.Split(text, "\n")
}
