// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
		"several errors, once": {err: errors.Join(errors.New("a"), nil, errors.New("b"), &StatusError{Code: ExitBlocked}, errors.New("a")),
			code: ExitError, stderr: "error: a\nerror: b\n"},
		"from the API server": {err: fmt.Errorf("failed: %w", apierrors.NewForbidden(corev1.Resource("namespaces"), "x", errors.New("no"))),
			code: ExitError, stderr: "Error from server (Forbidden): failed: namespaces \"x\" is forbidden: no\n"},
		"not logged in": {err: apierrors.NewUnauthorized("Unauthorized"), code: ExitError,
			stderr: "error: You must be logged in to the server (Unauthorized)\n"},
		"no connection": {err: &url.Error{Op: "Get", URL: "https://x", Err: errors.New("refused")}, code: ExitError,
			stderr: "Unable to connect to the server: Get \"https://x\": refused\n"},
		"connection refused": {err: &url.Error{Op: "Get", URL: "https://x:1/api", Err: syscall.ECONNREFUSED}, code: 1,
			stderr: "The connection to the server x:1 was refused - did you specify the right host or port?\n"},
		"interrupted": {err: fmt.Errorf("listing: %w", context.Canceled), code: ExitInterrupted, stderr: "Interrupted." + "\n"},
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

func TestArguments(t *testing.T) {
	for name, test := range map[string]struct {
		arguments []string
		err       string
	}{
		"no value of --resource": {[]string{"finalize", "shop", "--finalizer=a/b", "--resource="}, "--resource must not be empty"},
		"an empty --resource":    {[]string{"finalize", "shop", "--finalizer=a/b", "--resource", ""}, "--resource must not be empty"},
		"invalid template name":  {[]string{"create", "shop", "--template=Team"}, "invalid template name"},
		"template as label, too": {[]string{"create", "shop", "--template=a", "-l", "nslifecycle.dev/template=a"}, "mutually exclusive"},
		"no template":            {[]string{"template", "render", "--namespace=shop"}, "the name of a NamespaceTemplate or --filename is required"},
		"name and file":          {[]string{"template", "diff", "team", "-f=team.yaml"}, "the name of a NamespaceTemplate and --filename are mutually exclusive"},
		"two names":              {[]string{"template", "diff", "a", "b"}, "exactly one NamespaceTemplate"},
		"no namespace":           {[]string{"template", "render", "-f=team.yaml"}, "--namespace or --namespace-file is required"},
		"two namespaces":         {[]string{"template", "render", "-f=team.yaml", "-n=a", "--namespace-file=b"}, "--namespace and --namespace-file are mutually exclusive"},
		"invalid parameter":      {[]string{"template", "render", "-f=team.yaml", "-n=a", "-p=x"}, "invalid parameter"},
		"negative revision":      {[]string{"template", "rollout", "undo", "team", "--to-revision=-1"}, "must be a positive number"},
		"invalid dry run":        {[]string{"template", "rollout", "undo", "team", "--dry-run=x"}, "invalid --dry-run value"},
		"no rollout":             {[]string{"template", "rollout", "status"}, "exactly one NamespaceTemplate"},
		"unknown subcommand":     {[]string{"template", "remove"}, "accepts no arguments"},
	} {
		t.Run(name, func(t *testing.T) {
			root := New(genericiooptions.NewTestIOStreamsDiscard())
			root.SetArgs(test.arguments)
			err := root.Execute()
			if exit := (&StatusError{}); errors.As(err, &exit) {
				t.Errorf("got exit status %d", exit.Code)
			}
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(test.err)))
		})
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
