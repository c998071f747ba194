// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalizer

import (
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/pkg/internal/workrunner"
)

// Option configures [Add].
type Option func(*options)

// WithWorkers sets the number of Namespaces that are processed concurrently. The default is 4.
func WithWorkers(n int) Option {
	return func(options *options) { options.Workers = n }
}

// WithBackoff sets the delay after errors. The delay after the first error is first. It doubles with each further
// error and never exceeds max. The defaults are 200 ms and 1 minute.
func WithBackoff(first, max time.Duration) Option {
	return func(options *options) { options.Backoff = workrunner.Backoff{First: first, Max: max} }
}

// WithWatch calls the Func again when an object of this kind is created, changed or deleted, for each Namespace that
// is being deleted and is waiting for the Func. See initializer.WithWatch.
func WithWatch(
	object client.Object, affects func(object client.Object, namespace *corev1.Namespace) bool,
) Option {
	return func(options *options) {
		options.Watches = append(options.Watches, workrunner.Watch{Object: object, Affects: affects})
	}
}

// AfterContent calls the function only after all objects in the Namespace are deleted and the finalizer "kubernetes"
// is removed from spec.finalizers. Use it for resources that Pods need until they terminate, such as a log store.
func AfterContent() Option {
	return func(options *options) { options.isAfterContent = true }
}

// AddFinalizer adds the finalizer to existing and new Namespaces for which selects returns true. The finalizer is
// added after the Namespace is created, so the Namespace might be deleted before it gets the finalizer. Terminating
// Namespaces do not get the finalizer. selects is called each time a Namespace changes, and must not block. The
// finalizer is not removed if selects later returns false. The manager's cache contains all Namespaces.
func AddFinalizer(selects func(namespace *corev1.Namespace) bool) Option {
	return func(options *options) { options.addsFinalizer, options.selects = true, selects }
}

type options struct {
	workrunner.Options
	// isAfterContent delays the call until the content of the Namespace is deleted.
	isAfterContent bool
	// addsFinalizer is true if AddFinalizer is used, even if its function is nil, which is an error.
	addsFinalizer bool
	// selects reports whether a Namespace gets the finalizer.
	selects func(*corev1.Namespace) bool
}

// newOptions applies the options, and validates them and the name.
func newOptions(name corev1.FinalizerName, opts []Option) (options, error) {
	result := options{Options: workrunner.DefaultOptions()}
	for _, opt := range opts {
		opt(&result)
	}
	err := errors.Join(workrunner.ValidateFinalizer(name), result.Validate())
	if result.addsFinalizer && result.selects == nil {
		err = errors.Join(err, errors.New("AddFinalizer(nil): the function that selects Namespaces is nil"))
	}
	return result, err
}
