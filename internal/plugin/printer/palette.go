// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"io"
	"os"
)

// Palette adds colors to text. The zero value adds colors.
type Palette struct{ IsPlain bool }

// NewPalette returns the Palette for a stream. It adds colors only if the stream is a terminal that
// supports colors and NO_COLOR (https://no-color.org) is not set.
func NewPalette(out io.Writer) Palette {
	return Palette{IsPlain: !IsTerminal(out) || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb"}
}

// Red returns text in red.
func (p Palette) Red(text string) string { return p.paint("31", text) }

// Green returns text in green.
func (p Palette) Green(text string) string { return p.paint("32", text) }

// Yellow returns text in yellow.
func (p Palette) Yellow(text string) string { return p.paint("33", text) }

// Cyan returns text in cyan.
func (p Palette) Cyan(text string) string { return p.paint("36", text) }

// Faint returns text with decreased intensity.
func (p Palette) Faint(text string) string { return p.paint("2", text) }

// Bold returns text in bold.
func (p Palette) Bold(text string) string { return p.paint("1", text) }

func (p Palette) paint(code, text string) string {
	if p.IsPlain || text == "" {
		return text
	}
	return control + code + "m" + text + control + "0m"
}
