// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// Server is what an API server can do, of what is not the same everywhere.
type Server struct {
	// LacksMutatingPolicies tells that MutatingAdmissionPolicy v1 is not served, as before
	// Kubernetes 1.36. The operator itself gives new Namespaces their list then.
	LacksMutatingPolicies bool
}

// String says what follows for new namespaces.
func (s Server) String() string {
	if s.LacksMutatingPolicies {
		return "The API server does not serve MutatingAdmissionPolicy v1: " +
			"new namespaces get their initializers from the operator, and are open until then"
	}
	return "The API server serves MutatingAdmissionPolicy v1: " +
		"new namespaces get their initializers from the API server, in the request that creates them"
}

// requirement is a type that the API server has to serve.
type requirement struct {
	groupVersion schema.GroupVersion
	resources    []string
	remedy       string
}

func requirements() []requirement {
	return []requirement{{
		groupVersion: v1alpha1.GroupVersion,
		resources:    []string{"namespaceinitializerconfigurations", "namespaceinitializersets"},
		remedy: "the CustomResourceDefinitions are not installed; run: " + installCommand +
			", or, before Kubernetes 1.36: " + compatCommand,
	}, {
		groupVersion: admissionv1.SchemeGroupVersion,
		resources:    []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"},
		remedy: "the API server is too old, or the type is switched off in its --runtime-config; " +
			"use Kubernetes 1.30 or later",
	}}
}

// mutating is what the API server needs to give new namespaces their list itself.
func mutating() requirement {
	return requirement{
		groupVersion: admissionv1.SchemeGroupVersion,
		resources:    []string{"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"},
	}
}

// Preflight finds out what the API server can do. It returns an error that says what to do
// where the API server lacks a type that the reconcilers of initialization cannot work
// without. Without it they would only retry. Finalization needs nothing but a Kubernetes.
func Preflight(ctx context.Context, client discovery.DiscoveryInterfaceWithContext) (Server, error) {
	for _, required := range requirements() {
		missing, err := findMissing(ctx, client, required)
		if err != nil {
			return Server{}, err
		}
		if len(missing) > 0 {
			return Server{}, fmt.Errorf("the API server does not serve %s in %s: %s",
				strings.Join(missing, ", "), required.groupVersion, required.remedy)
		}
	}
	return findServer(ctx, client)
}

// findServer asks for types and not for a version: a type can be switched off.
func findServer(ctx context.Context, client discovery.DiscoveryInterfaceWithContext) (Server, error) {
	missing, err := findMissing(ctx, client, mutating())
	return Server{LacksMutatingPolicies: len(missing) > 0}, err
}

func findMissing(
	ctx context.Context, client discovery.DiscoveryInterfaceWithContext, required requirement,
) ([]string, error) {
	served, err := servedResources(ctx, client, required.groupVersion)
	if err != nil {
		return nil, err
	}
	var missing []string
	for _, resource := range required.resources {
		if !slices.Contains(served, resource) {
			missing = append(missing, resource)
		}
	}
	return missing, nil
}

func servedResources(
	ctx context.Context, client discovery.DiscoveryInterfaceWithContext, groupVersion schema.GroupVersion,
) ([]string, error) {
	list, err := client.ServerResourcesForGroupVersionWithContext(ctx, groupVersion.String())
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("asking the API server which types of %s it serves: %w", groupVersion, err)
	}
	names := make([]string, 0, len(list.APIResources))
	for _, resource := range list.APIResources {
		names = append(names, resource.Name)
	}
	return names, nil
}

// serverWatchInterval is how often the operator asks what the API server can do.
const serverWatchInterval = time.Minute

var errServerChanged = errors.New("the API server has changed, so the manager has to start again")

// serverWatch ends the manager when the API server can do more, or less, than when it
// started, as after an upgrade: what it watches depends on that.
type serverWatch struct {
	Discovery discovery.DiscoveryInterfaceWithContext
	Server    Server
	Interval  time.Duration
}

// NeedLeaderElection is for the manager: a standby has to start again as well.
func (w *serverWatch) NeedLeaderElection() bool { return false }

// Start returns an error once the API server is another one.
func (w *serverWatch) Start(ctx context.Context) error {
	err := wait.PollUntilContextCancel(ctx, w.Interval, false, func(ctx context.Context) (bool, error) {
		now, err := findServer(ctx, w.Discovery)
		// Where it does not answer, the next time tells.
		if err != nil || now == w.Server {
			return false, nil
		}
		return false, fmt.Errorf("%w. %s", errServerChanged, now)
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}
