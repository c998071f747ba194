// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalizer

import (
	"context"
	"fmt"
	"time"

	"github.com/nslifecycle/nslifecycle/pkg/internal/workrunner"
)

// NotYetError is the error that [NotYet] returns. It can be wrapped.
type NotYetError struct {
	// After is the maximum time until the function is called again.
	After time.Duration
	// Reason and Message are published in the condition. Reason is one word in CamelCase.
	Reason, Message string
}

// Error returns the reason and the message.
func (e *NotYetError) Error() string { return (*workrunner.NotYetError)(e).Error() }

// As converts the error to the type that package workrunner handles. It returns false for a nil
// pointer, which is an ordinary error.
func (e *NotYetError) As(target any) bool {
	notYet, ok := target.(**workrunner.NotYetError)
	if !ok || e == nil {
		return false
	}
	*notYet = (*workrunner.NotYetError)(e)
	return true
}

// NotYet returns a *NotYetError, which reports that the cleanup must wait. The function is called
// again after the duration, or when the labels, annotations or spec of the Namespace change. The wait
// is not logged as an error, and resets the backoff.
func NotYet(after time.Duration, reason, format string, args ...any) error {
	return &NotYetError{After: after, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Progress publishes the progress of a Func in the condition of the Namespace. ctx must be the
// context that was passed to the Func; with any other context, Progress does nothing. If the write
// fails, the error is logged. Progress replaces the error of the previous call, so call it only during
// long work.
func Progress(ctx context.Context, reason, format string, args ...any) {
	workrunner.Progress(ctx, reason, fmt.Sprintf(format, args...))
}
