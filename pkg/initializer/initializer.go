// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/pkg/initializer/internal/engine"
	"github.com/nslifecycle/nslifecycle/pkg/internal/workrunner"
)

// Func prepares one Namespace. It must be idempotent: it is called again after an error and after a
// restart. The Namespace is a copy. Func can modify the copy, but the changes are not written.
type Func func(ctx context.Context, namespace *corev1.Namespace) (Result, error)

// Result is the outcome of a successful Func. It is published in the condition "<name>/Initialized"
// after the name is removed from the pending list. If the Result is empty, the operator sets the
// condition.
type Result struct {
	// Reason is one word in CamelCase. The default for a Result with a message is "Initialized".
	Reason string
	// Message is a sentence for users.
	Message string
}

// Add adds a controller for the initializer to the manager. With leader election, the controller
// runs only in the leader. All initializers in a manager share one cache of the initializing
// Namespaces. They do not use the manager's own cache or scheme. Add returns an error if the name
// or an option is invalid, or if the name is already used in this process.
//
// When the manager starts, the result of [Check] is logged. Missing permissions do not stop the
// manager: the initializer starts working when they are granted.
func Add(mgr manager.Manager, name string, fn Func, opts ...Option) error {
	options, err := engine.NewOptions(name, opts)
	if fn == nil {
		err = errors.Join(err, fmt.Errorf("initializer %q: the function is nil", name))
	}
	if err != nil {
		return err
	}
	waiting, err := labels.NewRequirement(v1alpha1.LabelInitializing, selection.Exists, nil)
	if err != nil {
		return fmt.Errorf("failed to create a selector for label %s: %w", v1alpha1.LabelInitializing, err)
	}
	err = workrunner.Add(mgr, func(c client.Client) workrunner.Setup {
		return workrunner.Setup{
			Handler:   engine.NewHandler(c, name, workrunner.NewCall(fn), options),
			Options:   options.Options,
			Selection: workrunner.Selection{Label: labels.NewSelector().Add(*waiting)},
			Check: func(ctx context.Context) {
				logFindings(ctx, mgr.GetLogger().WithValues("initializer", name), check(ctx, c, name, options))
			},
		}
	})
	if err != nil {
		return fmt.Errorf("failed to add initializer %q to the manager: %w", name, err)
	}
	return nil
}

// Option configures [Add] and [Check].
type Option func(*engine.Options)

// Unordered calls the Func as soon as the Namespace is created, concurrently with other
// initializers, instead of waiting for the turn of this initializer. Use it for work that does not
// depend on other initializers.
func Unordered() Option {
	return func(options *engine.Options) { options.IsUnordered = true }
}

// WithWorkers sets the number of Namespaces that are processed concurrently. The default is 4.
func WithWorkers(n int) Option {
	return func(options *engine.Options) { options.Workers = n }
}

// WithBackoff sets the delay after errors. The delay after the first error is first. It doubles
// with each further error and never exceeds max. The defaults are 200 ms and 1 minute.
func WithBackoff(first, max time.Duration) Option {
	return func(options *engine.Options) { options.Backoff = workrunner.Backoff{First: first, Max: max} }
}

// WithFinalizer ensures that a Namespace has a namespace finalizer (an entry in spec.finalizers)
// before the Func is called for the first time. When the Namespace is deleted, a controller created
// with package finalizer can clean up and remove the finalizer. If the finalizer field in the
// configuration names the finalizer, the Namespace already has it, and no request is made.
// Otherwise, the permission to update namespaces/finalize is required.
func WithFinalizer(name corev1.FinalizerName) Option {
	return func(options *engine.Options) { options.Finalizer = &name }
}

// WithWatch calls the Func again when an object of this kind is created, changed or deleted, for each
// Namespace that waits for the initializer and whose turn it is. affects limits the
// calls to Namespaces to which the change of an object is relevant; nil means all. It must not block
// or modify the object.
//
// The objects are watched in the manager's cache. The program requires the verbs list and watch on
// them. To watch only metadata, pass a *metav1.PartialObjectMetadata with its kind set. The Func must
// read the objects with the same Go type through the manager's client, or with the manager's
// GetAPIReader. The cache has separate informers for typed objects, unstructured objects and metadata,
// so with another type, the Func might not see the change for which it is called.
//
// The watch ends the wait of [NotYet], but does not shorten the backoff after an error.
func WithWatch(
	object client.Object, affects func(object client.Object, namespace *corev1.Namespace) bool,
) Option {
	return func(options *engine.Options) {
		options.Watches = append(options.Watches, workrunner.Watch{Object: object, Affects: affects})
	}
}

// Progress publishes the progress of a Func in the condition "<name>/Initialized" of the Namespace.
// ctx must be the context that was passed to the Func; with any other context, Progress does
// nothing. It does not write if the condition is already up to date. If the write fails, the error
// is logged. Progress replaces the error of the previous call, so call it only during long work.
func Progress(ctx context.Context, reason, format string, args ...any) {
	workrunner.Progress(ctx, reason, fmt.Sprintf(format, args...))
}
