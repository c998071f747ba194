// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package orphans

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/internal/nswrite"
)

// Delete deletes an orphan unless its namespace exists again.
func (f *Finder) Delete(ctx context.Context, orphan *Orphan) (Outcome, error) {
	missing, err := f.isMissing(ctx, orphan.Namespace)
	if err != nil {
		return "", fmt.Errorf("failed to get namespace %q: %w", orphan.Namespace, err)
	}
	if !missing {
		return OutcomeSkipped, nil
	}
	objects := f.Client.Resource(orphan.gvr).Namespace(orphan.Namespace)
	err = objects.Delete(ctx, orphan.Name, metav1.DeleteOptions{
		Preconditions:     metav1.NewUIDPreconditions(string(orphan.UID)),
		PropagationPolicy: ptr.To(metav1.DeletePropagationBackground),
	})
	switch {
	case isNamespaceNotFound(err, orphan.Namespace):
		return OutcomeRejected, nil
	case nswrite.IsNotFound(err), nswrite.IsConflict(err):
		return OutcomeNotFound, nil
	case err != nil:
		return "", fmt.Errorf("failed to delete %s in namespace %q: %w", orphan, orphan.Namespace, err)
	}
	finalizers := orphan.Finalizers
	remaining, err := objects.Get(ctx, orphan.Name, metav1.GetOptions{})
	if err == nil {
		finalizers = remaining.Finalizers
	}
	switch {
	case apierrors.IsNotFound(err), err == nil && remaining.UID != orphan.UID:
		return OutcomeDeleted, nil
	case len(finalizers) > 0:
		return OutcomeHeld, nil
	case apierrors.IsForbidden(err):
		return OutcomeUnknown, nil
	case err != nil:
		return "", fmt.Errorf("failed to verify the deletion of %s in namespace %q: %w", orphan, orphan.Namespace, err)
	}
	return OutcomeTerminating, nil
}

// isNamespaceNotFound reports whether the API server rejected a request because the namespace, not
// the object, does not exist.
func isNamespaceNotFound(err error, namespace string) bool {
	return err != nil && strings.Contains(err.Error(), fmt.Sprintf("namespaces %q not found", namespace))
}
