// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"crypto/rand"
	"io"
	"strings"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// stream is stdout or stderr, where text from a cluster must not control the terminal. It escapes
// all characters that are not printable, except line feeds, tabs and the control sequences of this
// package. It accepts only whole characters in each Write.
type stream struct{ io.Writer }

// control starts the control sequences of this package, in the place of csi. It is random, so that
// no text from a cluster contains it.
var control = "\x1b" + rand.Text() + "["

// csi starts the control sequences that terminals understand.
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

// escaping returns streams that escape what is written to them.
func escaping(streams genericiooptions.IOStreams) genericiooptions.IOStreams {
	streams.Out, streams.ErrOut = stream{streams.Out}, stream{streams.ErrOut}
	return streams
}

// paragraph indents all lines of a text but the first, so that none of them looks like another
// error or warning.
func paragraph(text string) string { return strings.ReplaceAll(text, "\n", "\n  ") }
