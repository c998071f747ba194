// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// display shows what changes while somebody waits. On a terminal it keeps a block of lines
// up to date in place; elsewhere each line is printed once, when it is new.
type display struct {
	out    io.Writer
	isLive bool
	// drawn are the lines of the block that stand on the terminal.
	drawn []string
	// printed are the lines that were printed last elsewhere.
	printed map[string]bool
}

func newDisplay(out io.Writer) *display {
	return &display{out: out, isLive: isTerminal(out), printed: map[string]bool{}}
}

// printf prints a line that stays.
func (d *display) printf(format string, args ...any) {
	d.erase()
	fmt.Fprintf(d.out, format+"\n", args...)
}

// show replaces the block. Lines must not be wider than the terminal: one that wraps
// would be counted wrongly.
func (d *display) show(lines []string) {
	if d.isLive {
		if !slices.Equal(lines, d.drawn) {
			d.erase()
			for _, line := range lines {
				fmt.Fprintln(d.out, line)
			}
			d.drawn = lines
		}
		return
	}
	now := make(map[string]bool, len(lines))
	for _, line := range lines {
		now[line] = true
		if !d.printed[line] {
			fmt.Fprintln(d.out, line)
		}
	}
	d.printed = now
}

// erase takes the block off the terminal.
func (d *display) erase() {
	if len(d.drawn) > 0 {
		fmt.Fprintf(d.out, control+"%dA"+control+"J", len(d.drawn))
		d.drawn = nil
	}
}

// keep leaves the block where it stands: what is shown next goes below it.
func (d *display) keep() { d.drawn = nil }

// clip returns text as one line of printable characters, truncated to a width in characters.
func clip(text string, width int) string {
	text = printable.Escape(strings.Join(strings.Fields(text), " "))
	runes := []rune(text)
	if len(runes) <= width {
		return text
	}
	return string(runes[:max(0, width-3)]) + "..."
}

// bar draws how much of a total is done.
func bar(done, total, width int, colours palette) string {
	filled := width
	if total > 0 {
		filled = min(width, done*width/total)
	}
	return colours.green(strings.Repeat("█", filled)) + colours.faint(strings.Repeat("░", width-filled))
}
