// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
)

// Exit statuses of the plugin. They are part of its public interface.
const (
	// ExitOK means that the command succeeded, or that the namespace is healthy.
	ExitOK = 0
	// ExitError means that an error occurred, or that the result is unknown because some data could not
	// be read.
	ExitError = 1
	// ExitBlocked means that the namespace is stuck and the plugin found a cause.
	ExitBlocked = 3
	// ExitInterrupted means that the command received SIGINT or SIGTERM.
	ExitInterrupted = 130
)

// StatusError is an error with an exit status. If Err is nil, the command has already printed its
// result.
type StatusError struct {
	Code int
	Err  error
}

// Error implements error.
func (e *StatusError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns the error to print, or nil.
func (e *StatusError) Unwrap() error { return e.Err }

// report prints an error in the format of kubectl and returns the exit status.
func report(errOut io.Writer, err error) int {
	code := ExitError
	var exit *StatusError
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &exit):
		code, err = exit.Code, exit.Err
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(errOut, msgInterrupted)
		return ExitInterrupted
	}
	if err != nil {
		// The messages of the plugin and of the admission policies end with commands.
		fmt.Fprintln(errOut, printer.WrapCommand(fmt.Sprintf("error: %v", err), printer.TextWidth(errOut)))
	}
	return code
}
