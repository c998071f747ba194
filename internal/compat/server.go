// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package compat

import (
	"context"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/policyverifier"
)

// Server describes the capabilities of an API server.
type Server struct {
	// LacksMutatingPolicies is true if the API server does not serve MutatingAdmissionPolicy v1.
	LacksMutatingPolicies bool
}

// String describes how new Namespaces get the pending list.
func (s Server) String() string {
	if s.LacksMutatingPolicies {
		return msgOperatorInjects
	}
	return msgServerInjects
}

// PolicyObjects returns the types of policies and bindings that the API server serves. An informer
// for a type that is not served would prevent the manager from starting.
func (s Server) PolicyObjects() []client.Object {
	if s.LacksMutatingPolicies {
		return policyverifier.ValidatingObjects()
	}
	return policyverifier.Objects()
}

// Detect discovers the capabilities of the API server. It does not use the version of the API
// server, because a type can be disabled.
func Detect(ctx context.Context, api discovery.DiscoveryInterfaceWithContext) (Server, error) {
	missing, err := MissingResources(ctx, api, admissionv1.SchemeGroupVersion,
		"mutatingadmissionpolicies", "mutatingadmissionpolicybindings")
	return Server{LacksMutatingPolicies: len(missing) > 0}, err
}

// MissingResources returns those of the given resources that the API server does not serve.
func MissingResources(
	ctx context.Context, api discovery.DiscoveryInterfaceWithContext, groupVersion schema.GroupVersion,
	resources ...string,
) ([]string, error) {
	list, err := api.ServerResourcesForGroupVersionWithContext(ctx, groupVersion.String())
	if apierrors.IsNotFound(err) {
		return resources, nil
	}
	if err != nil {
		return nil, fmt.Errorf("failed to discover the resources of %s: %w", groupVersion, err)
	}
	return slices.DeleteFunc(resources, func(resource string) bool {
		return slices.ContainsFunc(list.APIResources, func(served metav1.APIResource) bool { return served.Name == resource })
	}), nil
}

// watchInterval is the interval at which ServerWatch repeats the discovery.
const watchInterval = time.Minute

// ServerWatch stops the manager when the capabilities of the API server change, for example after
// an upgrade: the manager's watches depend on the capabilities.
type ServerWatch struct {
	Discovery discovery.DiscoveryInterfaceWithContext
	Server    Server
}

// NeedLeaderElection returns false, because standby managers must also restart.
func (w *ServerWatch) NeedLeaderElection() bool { return false }

// Start returns an error when the API server's capabilities differ from Server.
func (w *ServerWatch) Start(ctx context.Context) error {
	err := wait.PollUntilContextCancel(ctx, watchInterval, false, func(ctx context.Context) (bool, error) {
		current, err := Detect(ctx, w.Discovery)
		if err != nil || current == w.Server {
			return false, nil // The next poll repeats the discovery.
		}
		return false, fmt.Errorf("the capabilities of the API server have changed, so the manager must restart: %s", current)
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}
