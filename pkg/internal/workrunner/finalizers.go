// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package workrunner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/nswrite"
)

// ValidateFinalizer returns an error if name is not a valid namespace finalizer (an entry in
// spec.finalizers) for a user's controller.
func ValidateFinalizer(name corev1.FinalizerName) error {
	problems := validation.IsQualifiedName(string(name))
	switch {
	case name == corev1.FinalizerKubernetes:
		problems = []string{"it belongs to the namespace controller"}
	case len(problems) == 0 && !strings.Contains(string(name), "/"):
		problems = []string{"it has no domain"}
	}
	if len(problems) > 0 {
		return errors.New(invalidFinalizerMessage(name, problems))
	}
	return nil
}

// MaxConflicts is the number of consecutive update conflicts that are retried immediately.
const MaxConflicts = 20

// Refresh reads a Namespace from the API server into namespace. It returns a NotFound error if the
// Namespace was deleted, or recreated with another UID.
func Refresh(ctx context.Context, reader client.Reader, namespace *corev1.Namespace) error {
	uid := namespace.UID
	var fresh corev1.Namespace
	if err := reader.Get(ctx, client.ObjectKeyFromObject(namespace), &fresh); err != nil {
		return err
	}
	if fresh.UID != uid {
		return apierrors.NewNotFound(corev1.Resource("namespaces"), namespace.Name)
	}
	*namespace = fresh
	return nil
}

// UpdateFinalizers changes spec.finalizers of a Namespace, and updates the given object. The
// preconditions are the UID and the resource version that were read. edit returns the new
// finalizers, or false to skip the write. After a conflict, edit is called again with the current
// Namespace. UpdateFinalizers reports whether it has changed the Namespace.
func UpdateFinalizers(
	ctx context.Context, c client.Client, namespace *corev1.Namespace,
	edit func(namespace *corev1.Namespace) ([]corev1.FinalizerName, bool),
) (bool, error) {
	for range MaxConflicts {
		finalizers, ok := edit(namespace)
		if !ok {
			return false, nil
		}
		changed := namespace.DeepCopy()
		changed.Spec.Finalizers = finalizers
		err := c.SubResource("finalize").Update(ctx, changed)
		if err == nil {
			*namespace = *changed
			return true, nil
		}
		if !nswrite.IsConflict(err) {
			return false, fmt.Errorf("failed to update spec.finalizers of namespace %q: %w", namespace.Name, err)
		}
		if err := Refresh(ctx, c, namespace); err != nil {
			return false, err
		}
	}
	return false, fmt.Errorf("failed to update spec.finalizers of namespace %q: %d consecutive update conflicts",
		namespace.Name, MaxConflicts)
}

// AddFinalizer adds a finalizer to a Namespace that matches and is not terminating.
func AddFinalizer(
	ctx context.Context, c client.Client, namespace *corev1.Namespace, name corev1.FinalizerName,
	match func(namespace *corev1.Namespace) bool,
) error {
	_, err := UpdateFinalizers(ctx, c, namespace, func(current *corev1.Namespace) ([]corev1.FinalizerName, bool) {
		exists := slices.Contains(current.Spec.Finalizers, name)
		// The finalizer would block the deletion of a Namespace that was never prepared.
		if exists || current.DeletionTimestamp != nil || !match(current) {
			return nil, false
		}
		return append(slices.Clone(current.Spec.Finalizers), name), true
	})
	return err
}
