// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/pkg/internal/workrunner"
)

// Func prepares one Namespace. It must be idempotent: it is called again after an error and after a restart. The
// Namespace is a copy. Func can modify the copy, but the changes are not written.
type Func func(ctx context.Context, namespace *corev1.Namespace) (Result, error)

// Result is the outcome of a successful Func, with the fields Reason and Message. It is published in the condition
// "<name>/Initialized" after the name is removed from the pending list. Reason is one word in CamelCase; the default
// for a Result with a message is "Initialized". If the Result is empty, the operator sets the condition.
type Result = workrunner.Result

// Add adds a controller for the initializer to the manager. With leader election, the controller runs only in the
// leader. It has a cache of the initializing Namespaces, and does not use the manager's own cache or scheme. Add
// returns an error if the name or an option is invalid, or if the name is already used in this process.
//
// When the controller starts, the result of [Check] is logged. Missing permissions do not stop the manager: the
// initializer starts working when they are granted.
func Add(mgr manager.Manager, name string, fn Func, opts ...Option) error {
	options, err := newOptions(name, opts)
	if fn == nil {
		err = errors.Join(err, fmt.Errorf("initializer %q: the function is nil", name))
	}
	if err != nil {
		return err
	}
	initializing, err := labels.NewRequirement(v1alpha1.LabelInitializing, selection.Exists, nil)
	if err != nil {
		return fmt.Errorf("failed to create a selector for label %s: %w", v1alpha1.LabelInitializing, err)
	}
	newHandler := func(c client.Client) workrunner.Handler {
		return (&engine{client: c, name: name, options: options}).handler(fn)
	}
	err = workrunner.Add(mgr, "initializer "+name, cache.ByObject{Label: labels.NewSelector().Add(*initializing)},
		options.Options, newHandler, func(ctx context.Context, c client.Client) {
			logFindings(ctx, mgr.GetLogger().WithValues("initializer", name), check(ctx, c, name, options))
		})
	if err != nil {
		return fmt.Errorf("failed to add initializer %q to the manager: %w", name, err)
	}
	return nil
}
