// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package workrunner

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Result is the outcome of a successful call. It is published unless it is empty.
type Result struct {
	Reason, Message string
}

// Call is the user's function. The Namespace is a copy.
type Call func(ctx context.Context, namespace *corev1.Namespace) (Result, error)

// Handler defines the work of a Reconciler.
type Handler struct {
	// Name identifies the handler in logs and metrics.
	Name string
	// ConditionType is the type of the published condition. If it is empty, no condition is
	// published.
	ConditionType corev1.NamespaceConditionType
	// DoneReason is the reason of the condition for a Result without a reason.
	DoneReason string
	// IsReserved reports whether only the operator may use a reason; optional.
	IsReserved func(reason string) bool

	// Match reports whether the Namespace needs the work, now or later. When it becomes false, a
	// running call is canceled and the state of the Namespace is dropped.
	Match func(namespace *corev1.Namespace) bool
	// Ready reports whether the work of a matching Namespace can start; optional.
	Ready func(namespace *corev1.Namespace) bool
	// Prepare runs before the first call; optional. It updates the Namespace if it reads or writes
	// it.
	Prepare func(ctx context.Context, namespace *corev1.Namespace) error
	// Call does the work.
	Call Call
	// Finish records the success, and reports whether it wrote. It does not write if the Namespace
	// no longer matches.
	Finish func(ctx context.Context, namespace *corev1.Namespace) (bool, error)
	// Fail records a permanent failure, and reports whether it wrote. If Fail is nil, a FailedError
	// is retried like any other error.
	Fail func(ctx context.Context, namespace *corev1.Namespace, failed *FailedError) (bool, error)
}

// NotYetError is the error of a call that has to wait.
type NotYetError struct {
	After           time.Duration
	Reason, Message string
}

// Error returns the reason and the message.
func (e *NotYetError) Error() string { return fmt.Sprintf("not yet: %s: %s", e.Reason, e.Message) }

// FailedError is the error of a call that can never succeed.
type FailedError struct {
	Reason  metav1.StatusReason
	Message string
}

// Error returns the reason and the message.
func (e *FailedError) Error() string {
	return fmt.Sprintf("permanent failure: %s: %s", e.Reason, e.Message)
}

// panicError is the error of a call that panicked.
type panicError struct{ value any }

func (p *panicError) Error() string { return PanicMessage(p.value) }
