// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// Unlimited is the width of a stream that is not a terminal.
const Unlimited = 1 << 20

// Screen describes the stream for which text is rendered.
type Screen struct {
	// Columns is the width to which text is wrapped. 0 means no wrapping.
	Columns int
	Colors  Palette
	// Now is the current time, for computing ages.
	Now time.Time
}

// NewScreen returns the Screen for a stream.
func NewScreen(out io.Writer) Screen {
	screen := Screen{Colors: NewPalette(out), Now: time.Now()}
	if IsTerminal(out) {
		screen.Columns = Width(out)
	}
	return screen
}

// IsTerminal reports whether a stream is a terminal.
func IsTerminal(of any) bool {
	file, ok := fileOf(of)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Width returns the number of columns of a terminal, or Unlimited for any other stream.
func Width(of any) int {
	if file, ok := fileOf(of); ok {
		if columns, _, err := term.GetSize(int(file.Fd())); err == nil && columns > 0 {
			return columns
		}
	}
	return Unlimited
}

// fileOf returns the file of stdin, stdout or stderr, even if EscapeStreams has wrapped it.
func fileOf(of any) (file *os.File, ok bool) {
	if escaped, isStream := of.(stream); isStream {
		of = escaped.Writer
	}
	file, ok = of.(*os.File)
	return file, ok
}
