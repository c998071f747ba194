// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/pkg/internal/workrunner"
)

// Failed returns an error that says that a Namespace can never be initialized: the operator
// deletes it. Return any other error for what can pass.
func Failed(reason metav1.StatusReason, format string, args ...any) error {
	return &FailedError{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// FailedError is the error of [Failed]. It may be wrapped.
type FailedError struct {
	// Reason is one word in CamelCase, such as those of metav1.
	Reason metav1.StatusReason
	// Message is for whoever asked for the Namespace.
	Message string
}

// Error returns reason and message.
func (e *FailedError) Error() string { return e.final().Error() }

// As gives package serving what it looks for.
func (e *FailedError) As(target any) bool {
	final, isWanted := target.(**workrunner.Final)
	if isWanted {
		*final = e.final()
	}
	return isWanted
}

func (e *FailedError) final() *workrunner.Final {
	return &workrunner.Final{Reason: e.Reason, Message: e.Message}
}

// NotYet returns an error that says that a Namespace cannot be initialized yet. That is no
// fault: its condition says why, and the Func is called again after a time, or as soon as
// labels, annotations or spec of the Namespace change. Without a time it is that of the first
// back-off.
func NotYet(after time.Duration, reason, format string, args ...any) error {
	return &NotYetError{After: after, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// NotYetError is the error of [NotYet]. It may be wrapped.
type NotYetError struct {
	// After is the time to wait.
	After time.Duration
	// Reason is one word in CamelCase.
	Reason string
	// Message says what is waited for.
	Message string
}

// Error returns reason and message.
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
