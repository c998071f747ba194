// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package workrunner

import (
	"fmt"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"

	"github.com/go-logr/logr"
)

// packagePrefix is the prefix of the names of this package's functions.
var packagePrefix = reflect.TypeFor[Reconciler]().PkgPath() + "."

// maxFrames is the maximum number of stack frames that are logged.
const maxFrames = 64

type panicError struct{ value any }

func (p *panicError) Error() string { return PanicMessage(p.value) }

// LogPanic logs a panic in a user's function, and returns it as an error. It must be called by the
// deferred function that recovers the panic. The stack is logged as a list, because most log formats
// escape the line breaks of a text.
func LogPanic(logger logr.Logger, message string, value any) error {
	err := &panicError{value: value}
	if lines := panicLines(value); len(lines) > 1 {
		logger = logger.WithValues("details", lines[1:])
	}
	logger.Error(err, message, "stack", panicStack())
	return err
}

// panicLines returns the lines of the panic value. The value can contain the stack of another
// goroutine.
func panicLines(value any) []string {
	return strings.Split(strings.TrimSpace(fmt.Sprint(value)), "\n")
}

// panicStack returns the stack frames from the code that panicked to the function of this package that
// called it. The caller's caller must be the deferred function that recovers the panic.
func panicStack() []string {
	counters := make([]uintptr, maxFrames)
	frames := runtime.CallersFrames(counters[:runtime.Callers(3, counters)])
	var stack []string
	for {
		frame, more := frames.Next()
		switch {
		case strings.HasPrefix(frame.Function, "runtime."):
			// The runtime raises the panic, and calls the deferred function.
			stack = nil
		case strings.HasPrefix(frame.Function, packagePrefix) && len(stack) > 0:
			return stack
		default:
			stack = append(stack, fmt.Sprintf("%s (%s:%d)", frame.Function,
				filepath.Join(filepath.Base(filepath.Dir(frame.File)), filepath.Base(frame.File)), frame.Line))
		}
		if !more {
			return stack
		}
	}
}
