// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package engine implements package finalizer, so that package finalizertest can run the same code.
// It decides which Namespaces are finalized, and adds and removes the namespace finalizer.
package engine

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nslifecycle/nslifecycle/pkg/internal/workrunner"
)

const (
	// LoggerName is the name of the logger of package finalizer.
	LoggerName = "finalizer"
	// ReasonReleased is the default reason of the condition after the finalizer is removed.
	ReasonReleased = "Released"
	// MessageReleased is the default message of that condition.
	MessageReleased = "The cleanup is complete and the namespace finalizer was removed"

	logSelectsPanicked = "Recovered from a panic in the function passed to finalizer.AddFinalizer; the finalizer is " +
		"not added to the namespace"
)

// Options are the options of package finalizer.
type Options struct {
	workrunner.Options
	// IsAfterContent delays the call until the content of the Namespace is deleted.
	IsAfterContent bool
	// AddsFinalizer is true if AddFinalizer is used, even if its function is nil, which is an error.
	AddsFinalizer bool
	// Selects reports whether a Namespace gets the finalizer.
	Selects func(*corev1.Namespace) bool
	// Fake is the client in tests with package finalizertest; nil otherwise.
	Fake client.WithWatch
}

// NewOptions applies the options, and validates them and the name.
func NewOptions[Option ~func(*Options)](name corev1.FinalizerName, opts []Option) (Options, error) {
	options := Options{Options: workrunner.DefaultOptions()}
	for _, opt := range opts {
		opt(&options)
	}
	err := errors.Join(workrunner.ValidateFinalizer(name), options.Validate())
	if options.AddsFinalizer && options.Selects == nil {
		err = errors.Join(err, errors.New("AddFinalizer(nil): the function that selects Namespaces is nil"))
	}
	return options, err
}

// NewHandler returns the handler that calls the function and removes the finalizer.
func NewHandler(
	c client.Client, name corev1.FinalizerName, call workrunner.Call, options Options,
) workrunner.Handler {
	matches := func(namespace *corev1.Namespace) bool {
		return namespace.DeletionTimestamp != nil && hasFinalizer(namespace, name)
	}
	return workrunner.Handler{
		Name:          "finalizer " + string(name),
		ConditionType: corev1.NamespaceConditionType(name),
		DoneReason:    ReasonReleased,
		DoneMessage:   MessageReleased,
		Match:         matches,
		Ready: func(namespace *corev1.Namespace) bool {
			return !options.IsAfterContent || !hasFinalizer(namespace, corev1.FinalizerKubernetes)
		},
		Call: call,
		Finish: func(ctx context.Context, namespace *corev1.Namespace) (bool, error) {
			remove := func(current *corev1.Namespace) ([]corev1.FinalizerName, bool) {
				return withoutFinalizer(current, name), matches(current)
			}
			return workrunner.UpdateFinalizers(ctx, c, namespace, remove)
		},
	}
}

// NewAddHandler returns the handler that adds the finalizer to selected Namespaces.
func NewAddHandler(
	c client.Client, name corev1.FinalizerName, selects func(*corev1.Namespace) bool,
) workrunner.Handler {
	matches := func(namespace *corev1.Namespace) bool {
		return namespace.DeletionTimestamp == nil && !hasFinalizer(namespace, name) && isSelected(namespace, name, selects)
	}
	return workrunner.Handler{
		Name:  "finalizer " + string(name) + " (add)",
		Match: matches,
		Call:  func(context.Context, *corev1.Namespace) (workrunner.Result, error) { return workrunner.Result{}, nil },
		Finish: func(ctx context.Context, namespace *corev1.Namespace) (bool, error) {
			if err := workrunner.AddFinalizer(ctx, c, namespace, name, matches); err != nil {
				return false, err
			}
			log.FromContext(ctx).V(1).Info("Reconciled the namespace finalizer", "uid", namespace.UID,
				"finalizers", namespace.Spec.Finalizers)
			return false, nil
		},
	}
}

// isSelected calls the user's function with a copy of the Namespace. It returns false if the
// function panics.
func isSelected(
	namespace *corev1.Namespace, name corev1.FinalizerName, selects func(*corev1.Namespace) bool,
) (selected bool) {
	defer func() {
		if value := recover(); value != nil {
			selected = false
			logger := log.Log.WithName(LoggerName).WithValues("finalizer", name, "name", namespace.Name)
			_ = workrunner.LogPanic(logger, logSelectsPanicked, value)
		}
	}()
	return selects(namespace.DeepCopy())
}

// hasFinalizer reports whether spec.finalizers contains the finalizer.
func hasFinalizer(namespace *corev1.Namespace, name corev1.FinalizerName) bool {
	return slices.Contains(namespace.Spec.Finalizers, name)
}

// withoutFinalizer returns spec.finalizers without the finalizer. It also removes duplicates,
// because each of them would block the deletion.
func withoutFinalizer(namespace *corev1.Namespace, name corev1.FinalizerName) []corev1.FinalizerName {
	return slices.DeleteFunc(slices.Clone(namespace.Spec.Finalizers),
		func(other corev1.FinalizerName) bool { return other == name })
}
