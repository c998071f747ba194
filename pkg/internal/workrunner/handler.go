// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package workrunner

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Handler defines what a reconciler does.
type Handler struct {
	// ConditionType is the type of the published condition.
	ConditionType corev1.NamespaceConditionType
	// DoneReason is the reason of the condition for a Result without a reason.
	DoneReason string
	// DoneMessage is the message of the condition for an empty Result. If it is empty, an empty Result is not
	// published.
	DoneMessage string
	// IsReserved reports whether a reason is reserved for the operator; optional.
	IsReserved func(reason string) bool

	// Match reports whether the function must be called for the Namespace now.
	Match func(namespace *corev1.Namespace) bool
	// Call is the function. The Namespace is a copy.
	Call func(ctx context.Context, namespace *corev1.Namespace) (Result, error)
	// Finish records the success, and reports whether it has written to the Namespace. It does not write if the
	// Namespace no longer matches.
	Finish func(ctx context.Context, namespace *corev1.Namespace) (bool, error)
	// Fail records a permanent failure, and reports whether it has written to the Namespace. If Fail is nil, a
	// FailedError is retried like any other error.
	Fail func(ctx context.Context, namespace *corev1.Namespace, failed *FailedError) (bool, error)
}

// Result is the outcome of a successful call.
type Result struct {
	// Reason is one word in CamelCase.
	Reason string
	// Message is a sentence for users.
	Message string
}

// NotYetError is the error that a call returns if it must wait.
type NotYetError struct {
	// After is the maximum time until the function is called again.
	After time.Duration
	// Reason is one word in CamelCase.
	Reason string
	// Message describes what the function waits for.
	Message string
}

// Error returns the reason and the message.
func (e *NotYetError) Error() string { return fmt.Sprintf("not yet: %s: %s", e.Reason, e.Message) }

// FailedError is the error that a call returns if it can never succeed.
type FailedError struct {
	// Reason is one word in CamelCase, such as a metav1.StatusReason constant.
	Reason metav1.StatusReason
	// Message is for the user who created the Namespace.
	Message string
}

// Error returns the reason and the message.
func (e *FailedError) Error() string {
	return fmt.Sprintf("permanent failure: %s: %s", e.Reason, e.Message)
}

// panicMessage returns the message of the condition after a panic. It contains only the first line of the panic
// value, which can contain a stack.
func panicMessage(value any) string {
	line, _, _ := strings.Cut(strings.TrimSpace(fmt.Sprint(value)), "\n")
	return fmt.Sprintf("panic: %s; this is a bug in the function passed to package initializer or finalizer; "+
		"the log contains the stack trace", line)
}
