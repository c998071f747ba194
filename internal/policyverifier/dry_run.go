// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package policyverifier

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/nswrite"
)

// probePrefix is the prefix of the names of Namespaces that are created as dry runs.
const probePrefix = "nslifecycle-probe-"

// dryRun creates a Namespace as a dry run. It returns the Namespace that the API server would
// create, or the refusal if admission rejects the request.
func dryRun(
	ctx context.Context, c client.Client, labels map[string]string,
) (namespace *corev1.Namespace, refusal, err error) {
	namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: probePrefix, Labels: maps.Clone(labels)}}
	switch err := c.Create(ctx, namespace, client.DryRunAll, client.FieldOwner(nswrite.FieldOwner)); {
	case IsRefusal(err):
		return nil, err, nil
	case err != nil:
		return nil, nil, fmt.Errorf("failed to create a namespace as a dry run: %w", err)
	}
	return namespace, nil, nil
}

// IsRefusal reports whether an error means that admission rejected a request. This includes
// internal errors, which the API server returns if a webhook does not respond.
func IsRefusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsInternalError(err)
}
