// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Display shows lines that change while a command is waiting. On a terminal, it updates a block of
// lines in place. Otherwise, it prints each new line once.
type Display struct {
	Out    io.Writer
	IsLive bool
	// drawn contains the lines of the last call of Show, on a terminal.
	drawn []string
	// printed contains these lines if the stream is not a terminal.
	printed map[string]bool
}

// NewDisplay returns a Display that writes to a stream.
func NewDisplay(out io.Writer) *Display {
	return &Display{Out: out, IsLive: IsTerminal(out), printed: map[string]bool{}}
}

// Printf erases the block and prints a permanent line.
func (d *Display) Printf(format string, args ...any) {
	d.Erase()
	fmt.Fprintf(d.Out, format+"\n", args...)
}

// Show replaces the block. A line must not be wider than the terminal: if the terminal wraps the
// line, Erase does not remove all of it.
func (d *Display) Show(lines []string) {
	if d.IsLive {
		if !slices.Equal(lines, d.drawn) {
			d.Erase()
			for _, line := range lines {
				fmt.Fprintln(d.Out, line)
			}
			d.drawn = lines
		}
		return
	}
	current := make(map[string]bool, len(lines))
	for _, line := range lines {
		current[line] = true
		if !d.printed[line] {
			fmt.Fprintln(d.Out, line)
		}
	}
	d.printed = current
}

// Erase removes the block from the terminal.
func (d *Display) Erase() {
	if len(d.drawn) > 0 {
		fmt.Fprintf(d.Out, control+"%dA"+control+"J", len(d.drawn))
		d.drawn = nil
	}
}

// Keep makes the block permanent. Subsequent output follows below the block.
func (d *Display) Keep() { d.drawn = nil }

// Bar renders a progress bar.
func Bar(done, total, width int, colors Palette) string {
	filled := width
	if total > 0 {
		filled = min(width, done*width/total)
	}
	return colors.Green(strings.Repeat("█", filled)) + colors.Faint(strings.Repeat("░", width-filled))
}
