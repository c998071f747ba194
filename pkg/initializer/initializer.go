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

// Func prepares one Namespace, which is a copy that it may change; the change goes nowhere.
// It is called again after an error and after a restart, so it has to bear being called again.
type Func func(ctx context.Context, namespace *corev1.Namespace) (Result, error)

// Result of a Func that has done its work. It is published in the condition
// "<name>/Initialized" once the name is off the list. Without one the operator publishes words
// of its own.
type Result struct {
	// Reason is one word in CamelCase; Initialized where there is a message alone.
	Reason string
	// Message is for people.
	Message string
}

// Add serves an initializer with a controller in a manager: of several replicas only the
// leader does. The initializers of a manager share a cache of the Namespaces that wait. The
// manager's own scheme and cache need to know nothing of all this.
//
// When the manager starts, Add logs what [Check] says. That stops nothing, and neither does
// a right that is missing: it goes on as soon as it is given.
func Add(mgr manager.Manager, name string, fn Func, opts ...Option) error {
	options, err := engine.NewOptions(name, opts)
	if fn == nil {
		err = errors.Join(err, fmt.Errorf("initializer %q has no function: give Add one that does the work", name))
	}
	if err != nil {
		return err
	}
	waiting, err := labels.NewRequirement(v1alpha1.LabelInitializing, selection.Exists, nil)
	if err != nil {
		return fmt.Errorf("selecting by label %s: %w", v1alpha1.LabelInitializing, err)
	}
	err = workrunner.Add(mgr, func(c client.Client) workrunner.Setup {
		return workrunner.Setup{
			Work:    engine.NewWork(c, name, call(fn), options),
			Options: options.Options,
			Watched: workrunner.Selection{Label: labels.NewSelector().Add(*waiting)},
			Check: func(ctx context.Context) {
				report(ctx, mgr.GetLogger().WithValues("initializer", name), check(ctx, c, name, options))
			},
		}
	})
	if err != nil {
		return fmt.Errorf("adding initializer %q to the manager: %w", name, err)
	}
	return nil
}

// call makes of a Func what package serving calls.
func call(fn Func) workrunner.Call {
	return func(ctx context.Context, namespace *corev1.Namespace) (workrunner.Result, error) {
		result, err := fn(ctx, namespace)
		return workrunner.Result(result), err
	}
}

// Option changes how an initializer is served.
type Option func(*engine.Options)

// Unordered does not wait for the initializer's turn: it is called as soon as the Namespace
// exists, at the same time as others. For work that needs nothing of what others do.
func Unordered() Option {
	return func(options *engine.Options) { options.IsUnordered = true }
}

// WithWorkers works on up to n Namespaces at a time; 4 without it.
func WithWorkers(n int) Option {
	return func(options *engine.Options) { options.Workers = n }
}

// WithBackoff sets the time between an error and the next call: first after the first error,
// then twice as long after each one, up to longest. 200 ms and a minute without it.
func WithBackoff(first, longest time.Duration) Option {
	return func(options *engine.Options) { options.Backoff = workrunner.Backoff{First: first, Max: longest} }
}

// WithFinalizer sees to it that a Namespace has a token in spec.finalizers before the Func is
// first called, so that an agent (package agent) is called for sure when the Namespace is
// deleted. Where the field finalizer of the configuration names the token, it is there from
// the beginning, and this costs nothing. Otherwise it takes the verb update on
// namespaces/finalize.
func WithFinalizer(token corev1.FinalizerName) Option {
	return func(options *engine.Options) { options.Finalizer = &token }
}

// Progress publishes how far a Func is, in the condition "<name>/Initialized" of the
// Namespace for which the Func was called with ctx. What was published last is not published
// again. It never fails: what cannot be published is left out. With any other context it does
// nothing.
func Progress(ctx context.Context, reason, format string, args ...any) {
	workrunner.Progress(ctx, reason, fmt.Sprintf(format, args...))
}
