// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"strings"

	"github.com/mitchellh/go-wordwrap"

	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// minWrapWidth is the minimum width to which text is wrapped. Narrower columns are harder to read
// than lines that the terminal wraps.
const minWrapWidth = 30

// Branch is a node of a tree.
type Branch struct {
	// Label precedes the text if Label is not empty.
	Label string
	Text  string
	// Paint colors the label or, without a label, the text. A nil function applies no color.
	Paint func(string) string
	// IsVerbatim prevents wrapping. It is used for commands that users copy.
	IsVerbatim bool
	Children   []Branch
}

// RenderTree renders branches as a tree that is wrapped to the given number of columns. 0 means no
// wrapping.
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
		// A vertical line next to the wrapped text connects the branch with its children.
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

// lines returns the label and the text of a branch, first wrapped and then colored.
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

// wrap splits text into lines with at most the given number of columns. If columns is 0, it splits
// only at line feeds.
func wrap(text string, columns int) []string {
	if columns > 0 {
		text = wordwrap.WrapString(text, uint(columns))
	}
	return strings.Split(text, "\n")
}
