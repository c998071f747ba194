// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package workrunner

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/nsobject"
)

// maxConflicts is the number of consecutive update conflicts that are retried immediately.
const maxConflicts = 20

// RetryOnConflict calls write again after each update conflict, with the current Namespace in the given object. It
// returns a NotFound error if the Namespace was deleted, or recreated with another UID.
func RetryOnConflict(
	ctx context.Context, reader client.Reader, namespace *corev1.Namespace, write func() error,
) error {
	for range maxConflicts {
		err := write()
		if !nsobject.IsConflict(err) {
			return err
		}
		var fresh corev1.Namespace
		if err := reader.Get(ctx, client.ObjectKeyFromObject(namespace), &fresh); err != nil {
			return err
		}
		if fresh.UID != namespace.UID {
			return apierrors.NewNotFound(corev1.Resource("namespaces"), namespace.Name)
		}
		*namespace = fresh
	}
	return fmt.Errorf("failed to update namespace %q: %d consecutive update conflicts", namespace.Name, maxConflicts)
}

// ValidateFinalizer returns an error if name is not a valid namespace finalizer (an entry in spec.finalizers) for a
// user's controller.
func ValidateFinalizer(name corev1.FinalizerName) error {
	problems := validation.IsQualifiedName(string(name))
	switch {
	case name == corev1.FinalizerKubernetes:
		problems = []string{"it belongs to the namespace controller"}
	case len(problems) == 0 && !strings.Contains(string(name), "/"):
		problems = []string{"it has no domain"}
	}
	if len(problems) > 0 {
		return fmt.Errorf("invalid namespace finalizer %q: %s; use a qualified name with a domain that you own, such as "+
			"\"search.example.com/index\"", name, strings.Join(problems, "; "))
	}
	return nil
}

// UpdateFinalizers changes spec.finalizers of a Namespace that matches, updates the given object, and reports whether
// it has changed the Namespace. The preconditions are the UID and the resource version that were read.
func UpdateFinalizers(
	ctx context.Context, c client.Client, namespace *corev1.Namespace, match func(namespace *corev1.Namespace) bool,
	change func(finalizers []corev1.FinalizerName) []corev1.FinalizerName,
) (isChanged bool, err error) {
	err = RetryOnConflict(ctx, c, namespace, func() error {
		if !match(namespace) {
			return nil
		}
		changed := namespace.DeepCopy()
		changed.Spec.Finalizers = change(changed.Spec.Finalizers)
		if err := c.SubResource("finalize").Update(ctx, changed); err != nil {
			return fmt.Errorf("failed to update spec.finalizers of namespace %q: %w", namespace.Name, err)
		}
		*namespace, isChanged = *changed, true
		return nil
	})
	return isChanged, err
}

// AddFinalizer adds a finalizer to a Namespace that matches and is not terminating. It would block the deletion of a
// terminating Namespace that was never prepared.
func AddFinalizer(
	ctx context.Context, c client.Client, namespace *corev1.Namespace, name corev1.FinalizerName,
	match func(namespace *corev1.Namespace) bool,
) error {
	lacksFinalizer := func(current *corev1.Namespace) bool {
		return current.DeletionTimestamp == nil && !slices.Contains(current.Spec.Finalizers, name) && match(current)
	}
	_, err := UpdateFinalizers(ctx, c, namespace, lacksFinalizer,
		func(finalizers []corev1.FinalizerName) []corev1.FinalizerName { return append(finalizers, name) })
	return err
}
