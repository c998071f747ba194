// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"strings"

	"github.com/mitchellh/go-wordwrap"

	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// minimalText is the least number of columns that text is wrapped to: a narrower column
// is harder to read than lines that the terminal breaks.
const minimalText = 30

// branch is one node of a tree that is printed.
type branch struct {
	// label says what the text is; it may be empty.
	label string
	text  string
	// paint colours the label or, where there is none, the text; nil leaves it alone.
	paint func(string) string
	// isVerbatim keeps the text in one line: a command that is to be copied.
	isVerbatim bool
	children   []branch
}

// renderTree prints branches one below the other, wrapped to a number of columns, or not
// at all if that is 0.
func renderTree(branches []branch, columns int) string {
	var out strings.Builder
	writeBranches(&out, branches, "", columns)
	return out.String()
}

func writeBranches(out *strings.Builder, branches []branch, indent string, columns int) {
	for i := range branches {
		tick, below := "├── ", "│   "
		if i == len(branches)-1 {
			tick, below = "└── ", "    "
		}
		below = indent + below
		// The lines of a text hang together with the branches below it by the same stroke.
		hanging := below
		if len(branches[i].children) > 0 {
			hanging += "│   "
		} else {
			hanging += "    "
		}
		left := columns
		if columns > 0 {
			left = max(columns-len([]rune(hanging)), minimalText)
		}
		first := indent + tick
		for _, line := range branches[i].lines(left) {
			out.WriteString(strings.TrimRight(first+line, " ") + "\n")
			first = hanging
		}
		writeBranches(out, branches[i].children, below, columns)
	}
}

// lines returns the text of a branch, coloured after wrapping.
func (b *branch) lines(columns int) []string {
	text, label := printable.Escape(b.text), printable.Escape(b.label)
	if label != "" && text != "" {
		label += ":"
		text = label + " " + text
	} else if label != "" {
		text = label
	}
	lines := []string{text}
	if !b.isVerbatim {
		lines = wrap(text, columns)
	}
	if b.paint == nil {
		return lines
	}
	for i, line := range lines {
		switch {
		case label == "":
			lines[i] = b.paint(line)
		case i == 0 && strings.HasPrefix(line, label):
			lines[i] = b.paint(label) + strings.TrimPrefix(line, label)
		}
	}
	return lines
}

// wrap breaks text into lines; at the line breaks that it has only, if columns is 0.
func wrap(text string, columns int) []string {
	if columns > 0 {
		text = wordwrap.WrapString(text, uint(columns))
	}
	return strings.Split(text, "\n")
}
