// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/policyverifier"
)

// PolicyVerifier verifies whether the API server enforces a NamespaceInitializerSet.
type PolicyVerifier interface {
	Verify(ctx context.Context, set *v1alpha1.NamespaceInitializerSet) (policyverifier.PolicyStatus, error)
}

// Stamper sets the time since which each wanted entry of a NamespaceInitializerSet has been
// enforced.
type Stamper interface {
	Stamp(ctx context.Context, wanted, have []v1alpha1.EffectiveInitializer) ([]v1alpha1.EffectiveInitializer, error)
}

// Injector adds the pending list to a new Namespace. If Inject cannot add the list yet, it returns
// the time until the retry.
type Injector interface {
	Inject(ctx context.Context, namespace *corev1.Namespace) (retryAfter time.Duration, err error)
}

// ServerInjects is both the Stamper and the Injector for an API server that adds the pending list.
type ServerInjects struct{}

// Stamp returns the wanted entries unchanged.
func (ServerInjects) Stamp(
	_ context.Context, wanted, _ []v1alpha1.EffectiveInitializer,
) ([]v1alpha1.EffectiveInitializer, error) {
	return wanted, nil
}

// Inject does nothing.
func (ServerInjects) Inject(context.Context, *corev1.Namespace) (time.Duration, error) { return 0, nil }
