// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// Display shows lines that change while a command is waiting. On a terminal, it updates a block of
// lines in place. Otherwise, it prints each new line once.
type Display struct {
	Out    io.Writer
	IsLive bool
	// drawn contains the lines of the last call of Show.
	drawn []string
}

// NewDisplay returns a Display that writes to a stream.
func NewDisplay(out io.Writer) *Display {
	return &Display{Out: out, IsLive: IsTerminal(out)}
}

// Printf erases the block and prints a permanent line.
func (d *Display) Printf(format string, args ...any) {
	d.Erase()
	fmt.Fprintf(d.Out, format+"\n", args...)
}

// Show replaces the block. An element of lines can be wrapped text that contains line feeds.
func (d *Display) Show(lines []string) {
	if slices.Equal(lines, d.drawn) {
		return
	}
	d.Erase()
	for _, line := range lines {
		if d.IsLive || !slices.Contains(d.drawn, line) {
			fmt.Fprintln(d.Out, line)
		}
	}
	d.drawn = lines
}

// Erase removes the block from the terminal.
func (d *Display) Erase() {
	if d.IsLive && len(d.drawn) > 0 {
		fmt.Fprintf(d.Out, control+"%dA"+control+"J", countRows(d.drawn, Width(d.Out)))
		d.drawn = nil
	}
}

// Keep makes the block permanent. Subsequent output follows below the block.
func (d *Display) Keep() { d.drawn = nil }

var colorSequence = regexp.MustCompile(regexp.QuoteMeta(control) + `\d+m`)

// countRows returns the number of rows that lines occupy on a terminal, which continues lines that
// are too long in the next row.
func countRows(lines []string, columns int) int {
	rows := 0
	for line := range strings.SplitSeq(strings.Join(lines, "\n"), "\n") {
		length := len([]rune(colorSequence.ReplaceAllString(line, "")))
		rows += max(1, (length+columns-1)/columns)
	}
	return rows
}

// Bar renders a progress bar, or nothing if the width is too small.
func Bar(done, total, width int, colors Palette) string {
	const minWidth = 8
	if width < minWidth {
		return ""
	}
	filled := width
	if total > 0 {
		filled = min(width, done*width/total)
	}
	return colors.Green(strings.Repeat("█", filled)) + colors.Faint(strings.Repeat("░", width-filled))
}
