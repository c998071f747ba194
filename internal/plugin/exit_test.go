// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/printable"
)

func TestReport(t *testing.T) {
	tests := map[string]struct {
		err    error
		code   int
		stderr string
	}{
		"no error":                 {code: ExitOK},
		"other error":              {err: errors.New("no"), code: ExitError, stderr: "error: no\n"},
		"blocked, already printed": {err: &StatusError{Code: ExitBlocked}, code: ExitBlocked},
		"blocked, wrapped error": {err: fmt.Errorf("x: %w", &StatusError{Code: ExitBlocked, Err: errors.New("held")}),
			code: ExitBlocked, stderr: "error: held\n"},
		"interrupted": {err: fmt.Errorf("listing: %w", context.Canceled), code: ExitInterrupted, stderr: msgInterrupted + "\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var stderr bytes.Buffer
			g.Expect(report(&stderr, test.err)).To(Equal(test.code))
			g.Expect(stderr.String()).To(Equal(test.stderr))
		})
	}
}

func TestErrorsAndWarningsAreEscaped(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	session := newSession(printer.EscapeStreams(genericiooptions.IOStreams{Out: &out, ErrOut: &out}))
	session.warnf("scale to %d", 7)
	g.Expect(out.String()).To(Equal("Warning: scale to 7\n"))

	const malicious = "x\nb\r\x07\u009b2J\u202e\x1b]0;t\x07"
	out.Reset()
	session.warnf("%s", malicious)
	g.Expect(out.String()).To(Equal("Warning: x\n  b" + printable.Escape(malicious[3:]) + "\n"))
	for _, err := range []error{errors.New("a\nerror: b"), &StatusError{Code: 1, Err: errors.New("a\nerror: b")}} {
		out.Reset()
		g.Expect(report(session.ErrOut, err)).To(Equal(1))
		g.Expect(out.String()).To(Equal("error: a\n  error: b\n"))
	}
}
