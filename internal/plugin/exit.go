// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Exit statuses of the plugin. They are public.
const (
	// ExitOK: done, or healthy.
	ExitOK = 0
	// ExitError: something went wrong, or could not be read.
	ExitError = 1
	// ExitBlocked: the namespace is stuck, and the findings say why.
	ExitBlocked = 3
	// ExitInterrupted: Ctrl-C, or SIGTERM, as shells count it.
	ExitInterrupted = 130
)

// StatusError ends the plugin with a status of its own. Err may be nil where everything has
// been said already; nothing more is printed then.
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

// Unwrap returns the error that is to be printed, or nil.
func (e *StatusError) Unwrap() error { return e.Err }

// exitWith is the error of a command that has said everything and ends with a status.
func exitWith(code int) error { return &StatusError{Code: code} }

// report prints an error as kubectl does and returns the exit status that it stands for.
func report(errOut io.Writer, err error) int {
	var exit *StatusError
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &exit):
		if exit.Err != nil {
			fmt.Fprintln(errOut, "error:", paragraph(exit.Err.Error()))
		}
		return exit.Code
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(errOut, "Interrupted.")
		return ExitInterrupted
	}
	fmt.Fprintln(errOut, "error:", paragraph(err.Error()))
	return ExitError
}
