// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/pkg/internal/workrunner"
)

// Failed returns a *FailedError, which reports that the Namespace can never be initialized. The
// operator then deletes the Namespace. For temporary problems, return any other error.
func Failed(reason metav1.StatusReason, format string, args ...any) error {
	return &FailedError{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// FailedError is the error that [Failed] returns. It can be wrapped.
type FailedError struct {
	// Reason is one word in CamelCase, such as a metav1.StatusReason constant.
	Reason metav1.StatusReason
	// Message is for the user who created the Namespace.
	Message string
}

// Error returns the reason and the message.
func (e *FailedError) Error() string { return (*workrunner.FailedError)(e).Error() }

// As converts the error to the type that package workrunner handles. It returns false for a nil
// pointer, which is an ordinary error.
func (e *FailedError) As(target any) bool {
	failed, ok := target.(**workrunner.FailedError)
	if !ok || e == nil {
		return false
	}
	*failed = (*workrunner.FailedError)(e)
	return true
}

// NotYet returns a *NotYetError, which reports that the Namespace cannot be initialized yet. The
// condition contains the reason and the message. The Func is called again after the duration, or
// when the labels, annotations or spec of the Namespace change. If the duration is not positive,
// the first backoff delay is used instead.
func NotYet(after time.Duration, reason, format string, args ...any) error {
	return &NotYetError{After: after, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// NotYetError is the error that [NotYet] returns. It can be wrapped.
type NotYetError struct {
	// After is the maximum time until the Func is called again.
	After time.Duration
	// Reason is one word in CamelCase.
	Reason string
	// Message describes what the initializer waits for.
	Message string
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
