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

// Result is the outcome of a successful call.
type Result struct {
	Reason, Message string
}

// Call is the user's function. The Namespace is a copy.
type Call func(ctx context.Context, namespace *corev1.Namespace) (Result, error)

// NewCall converts a function of package initializer or finalizer.
func NewCall[R ~struct{ Reason, Message string }](
	fn func(ctx context.Context, namespace *corev1.Namespace) (R, error),
) Call {
	return func(ctx context.Context, namespace *corev1.Namespace) (Result, error) {
		result, err := fn(ctx, namespace)
		return Result(result), err
	}
}

// Handler defines what a Reconciler does.
type Handler struct {
	// Name identifies the handler in logs and metrics.
	Name string
	// ConditionType is the type of the published condition. If it is empty, no condition is
	// published.
	ConditionType corev1.NamespaceConditionType
	// DoneReason is the reason of the condition for a Result without a reason.
	DoneReason string
	// DoneMessage is the message of the condition for an empty Result. If it is empty, an empty Result
	// is not published.
	DoneMessage string
	// IsReserved reports whether a reason is reserved for the operator; optional.
	IsReserved func(reason string) bool

	// Match reports whether the function must be called for the Namespace, now or later. When Match
	// returns false, a running call is canceled, and the state that the Reconciler keeps for the
	// Namespace is discarded.
	Match func(namespace *corev1.Namespace) bool
	// Ready reports whether the function can be called for a matching Namespace now; optional.
	Ready func(namespace *corev1.Namespace) bool
	// Prepare runs before the first call; optional. If it reads or writes the Namespace, it updates
	// the given object.
	Prepare func(ctx context.Context, namespace *corev1.Namespace) error
	// Call is the function.
	Call Call
	// Finish records the success, and reports whether it has written to the Namespace. It does not
	// write if the Namespace no longer matches.
	Finish func(ctx context.Context, namespace *corev1.Namespace) (bool, error)
	// Fail records a permanent failure, and reports whether it has written to the Namespace. If Fail
	// is nil, a FailedError is retried like any other error.
	Fail func(ctx context.Context, namespace *corev1.Namespace, failed *FailedError) (bool, error)
}

// NotYetError is the error that a call returns if it must wait.
type NotYetError struct {
	After           time.Duration
	Reason, Message string
}

// Error returns the reason and the message.
func (e *NotYetError) Error() string {
	if e == nil {
		return MessageNilError
	}
	return fmt.Sprintf("not yet: %s: %s", e.Reason, e.Message)
}

// FailedError is the error that a call returns if it can never succeed.
type FailedError struct {
	Reason  metav1.StatusReason
	Message string
}

// Error returns the reason and the message.
func (e *FailedError) Error() string {
	if e == nil {
		return MessageNilError
	}
	return fmt.Sprintf("permanent failure: %s: %s", e.Reason, e.Message)
}

// Reasons of the condition if the function does not specify one.
const (
	ReasonRetrying    = "Retrying"
	ReasonPanicked    = "Panicked"
	ReasonWaiting     = "Waiting"
	ReasonProgressing = "Progressing"
	ReasonWorking     = "Working"
)

const (
	// MessageWorking is the message of the condition with ReasonWorking.
	MessageWorking = "The function is running"
	// MessageNilError is the text of a nil pointer that is returned as an error. Such an error is not nil.
	MessageNilError = "the function returned a nil *FailedError or *NotYetError; to succeed, it must return nil"

	messageNoManager          = "the manager is nil: create one with ctrl.NewManager"
	messageMissingPermissions = "%s is not allowed to %s; as an administrator run: %s"
	messageInvalidFinalizer   = "invalid namespace finalizer %q: %s; use a qualified name with a domain that you own, " +
		"such as \"search.example.com/index\""
	messageDuplicateName = "%s is already registered in this process: add it once, or set SkipNameValidation in the " +
		"controller options of each manager that adds it"
)

// Help texts of the metrics.
const (
	helpCalls      = "Calls of the function of an initializer or finalizer, by result."
	helpCompletion = "Time from the turn of an initializer or finalizer in a namespace until its success or failure " +
		"is recorded, as seen by this process."
	helpNamespaces = "Namespaces in which it is the turn of an initializer or finalizer."
)

// Messages of the log after a panic.
const (
	logPanicked      = "Recovered from a panic"
	logWatchPanicked = "Recovered from a panic in the function passed to WithWatch; the namespace is reconciled"
)

// PanicMessage returns the message of the condition with ReasonPanicked. It contains only the first
// line of the panic value, which can contain a stack.
func PanicMessage(value any) string {
	return fmt.Sprintf("panic: %s; this is a bug in the function passed to package initializer or finalizer; "+
		"the log contains the stack trace", panicLines(value)[0])
}
