// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package compat

import (
	"context"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/policyverifier"
)

// Server describes the capabilities of an API server.
type Server struct {
	// LacksMutatingPolicies reports that the API server does not serve MutatingAdmissionPolicy v1.
	LacksMutatingPolicies bool
}

// String describes how new Namespaces get their pending list.
func (s Server) String() string {
	if s.LacksMutatingPolicies {
		return msgOperatorInjects
	}
	return msgServerInjects
}

// PolicyObjects returns the types of policies and bindings that the API server serves. An informer
// for another type would keep the manager from starting.
func (s Server) PolicyObjects() []client.Object {
	if s.LacksMutatingPolicies {
		return policyverifier.ValidatingObjects()
	}
	return policyverifier.Objects()
}

// Detect discovers the capabilities of the API server. It does not compare versions, since a type can
// be disabled.
func Detect(ctx context.Context, api discovery.DiscoveryInterfaceWithContext) (Server, error) {
	list, err := api.ServerResourcesForGroupVersionWithContext(ctx, admissionv1.SchemeGroupVersion.String())
	if apierrors.IsNotFound(err) {
		return Server{LacksMutatingPolicies: true}, nil
	}
	if err != nil {
		return Server{}, fmt.Errorf("failed to discover the resources of %s: %w", admissionv1.SchemeGroupVersion, err)
	}
	served := sets.New[string]()
	for _, resource := range list.APIResources {
		served.Insert(resource.Name)
	}
	return Server{
		LacksMutatingPolicies: !served.HasAll("mutatingadmissionpolicies", "mutatingadmissionpolicybindings"),
	}, nil
}

// watchInterval is how often ServerWatch repeats the discovery.
const watchInterval = time.Minute

// ServerWatch stops the manager when the capabilities of the API server change, for example after
// an upgrade: the manager's watches depend on them.
type ServerWatch struct {
	Discovery discovery.DiscoveryInterfaceWithContext
	Server    Server
}

// NeedLeaderElection returns false, since standby managers must restart, too.
func (w *ServerWatch) NeedLeaderElection() bool { return false }

// Start returns an error once the API server's capabilities differ from Server.
func (w *ServerWatch) Start(ctx context.Context) error {
	err := wait.PollUntilContextCancel(ctx, watchInterval, false, func(ctx context.Context) (bool, error) {
		current, err := Detect(ctx, w.Discovery)
		if err != nil || current == w.Server {
			return false, nil // The discovery is repeated after the interval.
		}
		return false, &ServerChangedError{Server: current}
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// ServerChangedError contains the new capabilities of the API server.
type ServerChangedError struct{ Server Server }

// Error implements error.
func (e *ServerChangedError) Error() string { return msgServerChanged(e.Server) }
