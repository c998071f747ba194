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
)

// ValidateToken says what is wrong with a token of spec.finalizers that belongs to an agent.
func ValidateToken(token corev1.FinalizerName) error {
	problems := validation.IsQualifiedName(string(token))
	switch {
	case token == corev1.FinalizerKubernetes:
		problems = []string{"that one belongs to the namespace controller"}
	case len(problems) == 0 && !strings.Contains(string(token), "/"):
		problems = []string{"it has no domain"}
	}
	if len(problems) > 0 {
		return fmt.Errorf("%q cannot be the token of an agent: %s; use a qualified name with a domain of yours, "+
			"such as \"search.example.com/index\"", token, strings.Join(problems, "; "))
	}
	return nil
}

// MaxRaces is how many lost races in a row are run again at once.
const MaxRaces = 20

// Reread reads a Namespace live into the object that holds it as it was. The error is
// NotFound where it has gone, and also where it was created again.
func Reread(ctx context.Context, reader client.Reader, namespace *corev1.Namespace) error {
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

// UpdateTokens changes spec.finalizers of a Namespace, with the UID and the resource version
// that were read, and brings the object up to date. Edit gets the tokens as they are and
// returns what they should be, or nil for false where nothing is to be written, such as for
// a Namespace that has changed since it was read. It tells whether something was written.
func UpdateTokens(
	ctx context.Context, c client.Client, namespace *corev1.Namespace,
	edit func(namespace *corev1.Namespace) ([]corev1.FinalizerName, bool),
) (bool, error) {
	for range MaxRaces {
		tokens, isWanted := edit(namespace)
		if !isWanted {
			return false, nil
		}
		changed := namespace.DeepCopy()
		changed.Spec.Finalizers = tokens
		err := c.SubResource("finalize").Update(ctx, changed)
		if err == nil {
			*namespace = *changed
			return true, nil
		}
		if !apierrors.IsConflict(err) {
			return false, fmt.Errorf("writing spec.finalizers of namespace %q: %w", namespace.Name, err)
		}
		if err := Reread(ctx, c, namespace); err != nil {
			return false, err
		}
	}
	return false, fmt.Errorf("writing spec.finalizers of namespace %q: others were first %d times",
		namespace.Name, MaxRaces)
}

// AddFinalizer puts a token on a Namespace that is wanted and has none.
func AddFinalizer(
	ctx context.Context, c client.Client, namespace *corev1.Namespace, token corev1.FinalizerName,
	isWanted func(namespace *corev1.Namespace) bool,
) error {
	_, err := UpdateTokens(ctx, c, namespace, func(current *corev1.Namespace) ([]corev1.FinalizerName, bool) {
		has := slices.Contains(current.Spec.Finalizers, token)
		// One that terminates would be held by a token whose work nobody has begun.
		if has || current.DeletionTimestamp != nil || !isWanted(current) {
			return nil, false
		}
		return append(slices.Clone(current.Spec.Finalizers), token), true
	})
	return err
}
