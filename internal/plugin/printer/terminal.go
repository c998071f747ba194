// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// MaxTextWidth is the maximum width of sentences, and the width of a stream that is not a terminal.
const MaxTextWidth = 100

// Screen describes the stream for which text is rendered.
type Screen struct {
	// Columns is the width to which text is wrapped.
	Columns int
	Colors  Palette
	// Now is the current time, for computing ages.
	Now time.Time
}

// NewScreen returns the Screen for a stream.
func NewScreen(out io.Writer) Screen {
	return Screen{Columns: TextWidth(out), Colors: NewPalette(out), Now: time.Now()}
}

// IsTerminal reports whether a stream is a terminal.
func IsTerminal(of any) bool {
	file, ok := fileOf(of)
	return ok && term.IsTerminal(int(file.Fd()))
}

// TextWidth returns the width to which sentences are wrapped.
func TextWidth(of any) int { return min(Width(of), MaxTextWidth) }

// Width returns the number of columns of a terminal, or MaxTextWidth for any other stream.
func Width(of any) int {
	if file, ok := fileOf(of); ok {
		if columns, _, err := term.GetSize(int(file.Fd())); err == nil && columns > 0 {
			return columns
		}
	}
	return MaxTextWidth
}

// fileOf returns the file of stdin, stdout or stderr, even if EscapeStreams has wrapped it.
func fileOf(of any) (file *os.File, ok bool) {
	if escaped, isStream := of.(stream); isStream {
		of = escaped.Writer
	}
	file, ok = of.(*os.File)
	return file, ok
}
