// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package initializerhealth determines whether the initializers of all configurations respond, and
// whether a subject is authorized to initialize namespaces.
package initializerhealth

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/owners"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/servertime"
)

const (
	// Interval is the interval between checks. Checks are periodic because no watch event shows
	// that an initializer is unresponsive.
	Interval = 30 * time.Second
	// authorizationInterval is how long the result of a successful authorization check is reused.
	// Failed checks are always repeated, so that the condition is up to date.
	authorizationInterval = 5 * time.Minute
)

// Checker determines the health of the initializers.
type Checker struct {
	client.Client
	// Live reads RBAC objects from the API server, because a cache of all of them would be large.
	Live        client.Reader
	ServerClock *servertime.Clock

	// authorizedAt is the time of the last successful authorization check, and authorizedFor
	// identifies the configurations at that time.
	authorizedAt  time.Time
	authorizedFor string
}

// Check returns the health of the initializers. Errors are part of the result, because they are
// reported in a condition.
func (c *Checker) Check(
	ctx context.Context, configurations []v1alpha1.NamespaceInitializerConfiguration,
) initialization.Health {
	now := c.ServerClock.Now()
	var health initialization.Health
	var waiting corev1.NamespaceList
	err := c.List(ctx, &waiting, client.HasLabels{v1alpha1.LabelInitializing}, client.UnsafeDisableDeepCopy)
	if err != nil {
		health.AuthorizationError = fmt.Sprintf("failed to list initializing namespaces: %v", err)
		return health
	}
	health.Unresponsive = initialization.FindUnresponsive(waiting.Items, now)
	generations := initialization.Generations(configurations)
	if c.authorizedFor == generations && now.Sub(c.authorizedAt) < authorizationInterval {
		health.IsAuthorized = true
		return health
	}
	isAuthorized, err := c.isAnySubjectAuthorized(ctx, configurations)
	if err != nil {
		health.AuthorizationError = err.Error()
		return health
	}
	if health.IsAuthorized = isAuthorized; isAuthorized {
		c.authorizedAt, c.authorizedFor = now, generations
	}
	return health
}

// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles;clusterrolebindings,verbs=list

// isAnySubjectAuthorized reports whether a subject other than the control plane has the
// "initialize" verb.
func (c *Checker) isAnySubjectAuthorized(
	ctx context.Context, configurations []v1alpha1.NamespaceInitializerConfiguration,
) (bool, error) {
	var bindings rbacv1.ClusterRoleBindingList
	if err := c.Live.List(ctx, &bindings); err != nil {
		return false, fmt.Errorf("failed to list ClusterRoleBindings: %w", err)
	}
	var roles rbacv1.ClusterRoleList
	if err := c.Live.List(ctx, &roles); err != nil {
		return false, fmt.Errorf("failed to list ClusterRoles: %w", err)
	}
	var waiting []v1alpha1.Subject
	for i := range configurations {
		waiting = append(waiting, initialization.ComparableSubjects(configurations[i].WaitingSubjects)...)
	}
	return owners.CanAnyoneInitialize(roles.Items, bindings.Items, waiting), nil
}
