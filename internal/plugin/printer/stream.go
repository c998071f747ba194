// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"crypto/rand"
	"io"
	"strings"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/nslifecycle/nslifecycle/internal/printable"
)

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
