// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalizer

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/pkg/finalizer/internal/engine"
	"github.com/nslifecycle/nslifecycle/pkg/internal/workrunner"
)

// Option configures [Add].
type Option func(*engine.Options)

// WithWorkers sets the number of Namespaces that are processed concurrently. The default is 4.
func WithWorkers(n int) Option {
	return func(options *engine.Options) { options.Workers = n }
}

// WithBackoff sets the delay after errors. The delay after the first error is first. It doubles
// with each further error and never exceeds max. The defaults are 200 ms and 1 minute.
func WithBackoff(first, max time.Duration) Option {
	return func(options *engine.Options) { options.Backoff = workrunner.Backoff{First: first, Max: max} }
}

// WithWatch calls the Func again when an object of this kind is created, changed or deleted, for each
// Namespace that is being deleted and is waiting for the Func. affects limits the
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

// AfterContent calls the function only after all objects in the Namespace are deleted and the
// finalizer "kubernetes" is removed from spec.finalizers. Use it for resources that Pods need until
// they terminate, such as a log store.
func AfterContent() Option {
	return func(options *engine.Options) { options.IsAfterContent = true }
}

// AddFinalizer adds the finalizer to existing and new Namespaces for which selects returns true.
// The finalizer is added after the Namespace is created, so the Namespace might be deleted before
// it gets the finalizer. Terminating Namespaces do not get the finalizer. selects is called each
// time a Namespace changes, and must not block. The finalizer is not removed if selects later
// returns false.
func AddFinalizer(selects func(namespace *corev1.Namespace) bool) Option {
	return func(options *engine.Options) { options.AddsFinalizer, options.Selects = true, selects }
}
