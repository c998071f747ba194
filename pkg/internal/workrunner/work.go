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

// Reasons of the condition where the function gives none.
const (
	ReasonRetrying    = "Retrying"
	ReasonPanicked    = "Panicked"
	ReasonWaiting     = "Waiting"
	ReasonProgressing = "Progressing"
	ReasonWorking     = "Working"
)

// Result is what a call says of work that is done. It is published where it is not empty.
type Result struct {
	Reason, Message string
}

// Call does the work for one Namespace, which is a copy of its own.
type Call func(ctx context.Context, namespace *corev1.Namespace) (Result, error)

// Work is what a Reconciler serves.
type Work struct {
	// Name tells the work from others in the log and in metrics.
	Name string
	// ConditionType is the type of the condition in which the work tells how far it is;
	// empty where it tells of nothing.
	ConditionType corev1.NamespaceConditionType
	// ReasonDone is the reason of the condition for a Result with a message alone.
	ReasonDone string
	// IsReserved tells the reasons that nobody but the operator gives; nil if there are none.
	IsReserved func(reason string) bool

	// Owed tells whether a Namespace is owed the work at all, now or later. Where it no
	// longer is, a call is cancelled and all that is remembered is forgotten.
	Owed func(namespace *corev1.Namespace) bool
	// Due tells whether the work can be done now for a Namespace that is owed it; nil if always.
	Due func(namespace *corev1.Namespace) bool
	// Prepare does what has to be there before the first call; nil if there is nothing. It
	// brings the Namespace up to date where it reads or writes it.
	Prepare func(ctx context.Context, namespace *corev1.Namespace) error
	// Call does the work.
	Call Call
	// Finish writes that the work is done, and tells whether it was this call that did. It
	// has not where the Namespace turned out not to be owed the work any more.
	Finish func(ctx context.Context, namespace *corev1.Namespace) (bool, error)
	// Fail writes that the work can never be done, and tells the same; nil where that cannot
	// be said, and a Final is an error like others then.
	Fail func(ctx context.Context, namespace *corev1.Namespace, final *Final) (bool, error)
}

// Wait is the error of a call that cannot do its work yet.
type Wait struct {
	After           time.Duration
	Reason, Message string
}

// Error says what is waited for.
func (w *Wait) Error() string { return fmt.Sprintf("not yet: %s: %s", w.Reason, w.Message) }

// Final is the error of a call that can never do its work.
type Final struct {
	Reason  metav1.StatusReason
	Message string
}

// Error says why.
func (f *Final) Error() string { return fmt.Sprintf("failed for good: %s: %s", f.Reason, f.Message) }

// panicError is the error of a call that has panicked.
type panicError struct{ value any }

func (p *panicError) Error() string {
	return fmt.Sprintf("panic: %v; this is a bug in the function that was given to package initializer or agent, "+
		"whose log has the stack", p.value)
}
