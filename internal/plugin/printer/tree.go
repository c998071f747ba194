// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"strings"

	"github.com/nslifecycle/nslifecycle/internal/printable"
)

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
