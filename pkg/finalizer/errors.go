// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalizer

import (
	"context"
	"fmt"
	"time"

	"github.com/nslifecycle/nslifecycle/pkg/internal/workrunner"
)

// NotYetError says that the work cannot be done yet. Waiting is no error: there is no
// back-off, and nothing is logged.
type NotYetError struct {
	// After is when to call the function again, at the latest.
	After time.Duration
	// Reason and Message are published in the condition.
	Reason, Message string
}

// Error says what is waited for.
func (e *NotYetError) Error() string { return e.wait().Error() }

// As gives package serving what it looks for.
func (e *NotYetError) As(target any) bool {
	wait, isWanted := target.(**workrunner.Wait)
	if isWanted {
		*wait = e.wait()
	}
	return isWanted
}

func (e *NotYetError) wait() *workrunner.Wait {
	return &workrunner.Wait{After: e.After, Reason: e.Reason, Message: e.Message}
}

// NotYet returns a *NotYetError. The function is called again after the time, or when the
// Namespace has changed.
func NotYet(after time.Duration, reason, format string, args ...any) error {
	return &NotYetError{After: after, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Progress publishes from inside of a Func how far it is, in the condition of the token. It
// does nothing anywhere else, and its failure is none of the function.
func Progress(ctx context.Context, reason, format string, args ...any) {
	workrunner.Progress(ctx, reason, fmt.Sprintf(format, args...))
}
