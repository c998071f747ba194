// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalizer

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/nslifecycle/nslifecycle/pkg/internal/workrunner"
)

// Func deletes the external resources of a Namespace that is being deleted. If it returns a nil error, the finalizer
// is removed. Func must be idempotent: it is called again after an error and after a restart. The Namespace is a copy
// that Func can modify.
type Func func(ctx context.Context, namespace *corev1.Namespace) (Result, error)

// Result is the outcome of a successful Func, with the fields Reason and Message. It is published in the condition if
// the Namespace still has other finalizers. Reason is one word in CamelCase, such as IndexDeleted; the default is
// "Released". Message is a sentence for users.
type Result = workrunner.Result

// Add adds a controller to the manager. The controller calls fn for each Namespace that is being deleted and that has
// the finalizer name in spec.finalizers. With leader election, the controller runs only in the leader. Add returns an
// error if the name or an option is invalid, or if another controller in this process has the same name.
func Add(mgr manager.Manager, name corev1.FinalizerName, fn Func, opts ...Option) error {
	if fn == nil {
		return fmt.Errorf("finalizer.Add(%q): the function is nil", name)
	}
	options, err := newOptions(name, opts)
	if err != nil {
		return fmt.Errorf("finalizer.Add(%q): %w", name, err)
	}
	// Only terminating Namespaces need to be watched. The API server keeps the phase consistent with the
	// deletionTimestamp.
	terminating := fields.OneTermEqualSelector("status.phase", string(corev1.NamespaceTerminating))
	err = workrunner.Add(mgr, "finalizer "+string(name), cache.ByObject{Field: terminating}, options.Options,
		func(c client.Client) workrunner.Handler { return newHandler(c, name, fn, options) },
		func(ctx context.Context, c client.Client) {
			if err := checkPermissions(ctx, c, name); err != nil && ctx.Err() == nil {
				mgr.GetLogger().Error(err, "Cannot remove the namespace finalizer", "finalizer", name)
			}
		})
	if err == nil && options.selects != nil {
		err = addAdder(mgr, name, options)
	}
	if err != nil {
		return fmt.Errorf("finalizer.Add(%q): %w", name, err)
	}
	return nil
}

// NotYetError is the error that [NotYet] returns, with the fields After, Reason and Message. It can be wrapped.
type NotYetError = workrunner.NotYetError

// NotYet returns a *NotYetError, which reports that the cleanup must wait. The condition contains the reason, one
// word in CamelCase, and the message. The function is called again after the duration, or when the labels,
// annotations or spec of the Namespace change. The wait is not logged as an error, and resets the backoff.
func NotYet(after time.Duration, reason, format string, args ...any) error {
	return &NotYetError{After: after, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Progress publishes the progress of a Func in the condition of the Namespace. ctx must be the context that was
// passed to the Func; with any other context, Progress does nothing. If the write fails, the error is logged.
// Progress replaces the error of the previous call, so call it only during long work.
func Progress(ctx context.Context, reason, format string, args ...any) {
	workrunner.Progress(ctx, reason, format, args...)
}
