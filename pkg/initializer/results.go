// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/pkg/internal/workrunner"
)

// FailedError is the error that [Failed] returns, with the fields Reason and Message. It can be wrapped.
type FailedError = workrunner.FailedError

// Failed returns a *FailedError, which reports that the Namespace can never be initialized. The operator then deletes
// the Namespace. For temporary problems, return any other error. The reason is one word in CamelCase, such as a
// metav1.StatusReason constant, and the message is for the user who created the Namespace.
func Failed(reason metav1.StatusReason, format string, args ...any) error {
	return &FailedError{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// NotYetError is the error that [NotYet] returns, with the fields After, Reason and Message. It can be wrapped.
type NotYetError = workrunner.NotYetError

// NotYet returns a *NotYetError, which reports that the Namespace cannot be initialized yet. The condition contains
// the reason, one word in CamelCase, and the message. The Func is called again after the duration, or when the
// labels, annotations or spec of the Namespace change. If the duration is not positive, the first backoff delay is
// used instead.
func NotYet(after time.Duration, reason, format string, args ...any) error {
	return &NotYetError{After: after, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Progress publishes the progress of a Func in the condition "<name>/Initialized" of the Namespace. ctx must be the
// context that was passed to the Func; with any other context, Progress does nothing. It does not write if the
// condition is already up to date. If the write fails, the error is logged. Progress replaces the error of the
// previous call, so call it only during long work.
func Progress(ctx context.Context, reason, format string, args ...any) {
	workrunner.Progress(ctx, reason, format, args...)
}
