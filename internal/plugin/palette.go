// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"io"
	"os"

	"golang.org/x/term"
)

// palette colours text, or leaves it alone.
type palette struct{ isPlain bool }

// palette returns the colours for what is written to a stream: none unless it is a
// terminal that can show them and nobody has set NO_COLOR (https://no-color.org).
func (s *session) palette(out io.Writer) palette {
	return palette{isPlain: !isTerminal(out) || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb"}
}

func (p palette) red(text string) string    { return p.paint("31", text) }
func (p palette) green(text string) string  { return p.paint("32", text) }
func (p palette) yellow(text string) string { return p.paint("33", text) }
func (p palette) cyan(text string) string   { return p.paint("36", text) }
func (p palette) faint(text string) string  { return p.paint("2", text) }
func (p palette) bold(text string) string   { return p.paint("1", text) }

func (p palette) paint(code, text string) string {
	if p.isPlain || text == "" {
		return text
	}
	return control + code + "m" + text + control + "0m"
}

// isTerminal reports whether a stream is a terminal.
func isTerminal(of any) bool {
	file, isFile := fileOf(of)
	return isFile && term.IsTerminal(int(file.Fd()))
}

// fileOf returns the file behind stdin, stdout or stderr.
func fileOf(of any) (file *os.File, ok bool) {
	if escaped, isStream := of.(stream); isStream {
		of = escaped.Writer
	}
	file, ok = of.(*os.File)
	return file, ok
}

// unlimited is the width of a stream that is not a terminal.
const unlimited = 1 << 20

// width returns the columns of a terminal, or unlimited for anything else.
func width(of any) int {
	if file, isFile := fileOf(of); isFile {
		if columns, _, err := term.GetSize(int(file.Fd())); err == nil && columns > 0 {
			return columns
		}
	}
	return unlimited
}
