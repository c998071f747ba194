// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// MaxTextWidth is the maximum width of sentences.
const MaxTextWidth = 100

// IsTerminal reports whether a stream is a terminal, even if EscapeStreams has wrapped it.
func IsTerminal(of any) bool {
	if escaped, isStream := of.(stream); isStream {
		of = escaped.Writer
	}
	file, ok := of.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

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

func (p Palette) paint(code, text string) string {
	if p.IsPlain || text == "" {
		return text
	}
	return control + code + "m" + text + control + "0m"
}

// stream is stdout or stderr. It escapes all unprintable characters except line feeds, tabs and the
// control sequences of this package, so that text from a cluster cannot control the terminal. Each
// Write must contain only complete characters.
type stream struct{ io.Writer }

// The control sequences of this package use control instead of csi. The value of control is random,
// so that text from a cluster cannot contain it.
var control = "\x1b" + rand.Text() + "["

// csi is the Control Sequence Introducer of ANSI terminals.
const csi = "\x1b["

// Write implements io.Writer.
func (s stream) Write(text []byte) (int, error) {
	parts := strings.Split(string(text), control)
	for i := range parts {
		parts[i] = printable.Lines(parts[i])
	}
	if _, err := io.WriteString(s.Writer, strings.Join(parts, csi)); err != nil {
		return 0, err
	}
	return len(text), nil
}

// EscapeStreams returns streams that escape all text written to Out and ErrOut.
func EscapeStreams(streams genericiooptions.IOStreams) genericiooptions.IOStreams {
	streams.Out, streams.ErrOut = stream{streams.Out}, stream{streams.ErrOut}
	return streams
}

// Display prints lines that change while a command is waiting, each new line once.
type Display struct {
	Out io.Writer
	// shown contains the lines of the last call of Show.
	shown []string
}

// Show prints the lines that the last call of Show did not contain. A line can be wrapped text that contains line
// feeds.
func (d *Display) Show(lines []string) {
	for _, line := range lines {
		if !slices.Contains(d.shown, line) {
			fmt.Fprintln(d.Out, line)
		}
	}
	d.shown = lines
}
