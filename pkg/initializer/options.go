// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/pkg/internal/workrunner"
)

// Option configures [Add] and [Check].
type Option func(*options)

// Unordered calls the Func as soon as the Namespace is created, concurrently with other initializers, instead of
// waiting for the turn of this initializer. Use it for work that does not depend on other initializers.
func Unordered() Option {
	return func(options *options) { options.isUnordered = true }
}

// WithWorkers sets the number of Namespaces that are processed concurrently. The default is 4.
func WithWorkers(n int) Option {
	return func(options *options) { options.Workers = n }
}

// WithBackoff sets the delay after errors. The delay after the first error is first. It doubles with each further
// error and never exceeds max. The defaults are 200 ms and 1 minute.
func WithBackoff(first, max time.Duration) Option {
	return func(options *options) { options.Backoff = workrunner.Backoff{First: first, Max: max} }
}

// WithFinalizer ensures that a Namespace has a namespace finalizer (an entry in spec.finalizers) before the Func is
// called for the first time. When the Namespace is deleted, a controller created with package finalizer can clean up
// and remove the finalizer. If the finalizer field in the configuration names the finalizer, the Namespace already
// has it, and no request is made. Otherwise, the permission to update namespaces/finalize is required.
func WithFinalizer(name corev1.FinalizerName) Option {
	return func(options *options) { options.finalizer = &name }
}

// WithWatch calls the Func again when an object of this kind is created, changed or deleted, for each Namespace that
// waits for the initializer and whose turn it is. affects limits the calls to Namespaces to which the change of an
// object is relevant; nil means all. It must not block or modify the object.
//
// The objects are watched in the manager's cache. The program requires the verbs list and watch on them. To watch
// only metadata, pass a *metav1.PartialObjectMetadata with its kind set. The Func must read the objects with the same
// Go type through the manager's client, or with the manager's GetAPIReader. The cache has separate informers for
// typed objects, unstructured objects and metadata, so with another type, the Func might not see the change for which
// it is called.
//
// The watch ends the wait of [NotYet], but does not shorten the backoff after an error.
func WithWatch(
	object client.Object, affects func(object client.Object, namespace *corev1.Namespace) bool,
) Option {
	return func(options *options) {
		options.Watches = append(options.Watches, workrunner.Watch{Object: object, Affects: affects})
	}
}

type options struct {
	workrunner.Options
	// isUnordered disables waiting for the initializer's turn.
	isUnordered bool
	// finalizer is the namespace finalizer that a Namespace must have before the Func is called; nil if there is
	// none.
	finalizer *corev1.FinalizerName
}

// newOptions applies the options, and validates them and the name.
func newOptions(name string, opts []Option) (options, error) {
	result := options{Options: workrunner.DefaultOptions()}
	for _, opt := range opts {
		opt(&result)
	}
	err := errors.Join(v1alpha1.ValidateInitializerName(name), result.Validate())
	if result.finalizer != nil {
		err = errors.Join(err, workrunner.ValidateFinalizer(*result.finalizer))
	}
	return result, err
}
