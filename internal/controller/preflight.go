// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

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
		remedy:       "the CustomResourceDefinitions are not installed; run: " + installCommand,
	}, {
		groupVersion: admissionv1.SchemeGroupVersion,
		resources: []string{
			"mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
			"validatingadmissionpolicies", "validatingadmissionpolicybindings",
		},
		remedy: "the API server is too old, or the type is switched off in its --runtime-config; " +
			"use Kubernetes 1.36 or later",
	}}
}

// Preflight returns an error that says what to do where the API server lacks a type
// that the reconcilers of initialization cannot work without. Without it they would only
// retry. Finalization needs nothing but a Kubernetes.
func Preflight(ctx context.Context, client discovery.DiscoveryInterfaceWithContext) error {
	for _, required := range requirements() {
		served, err := servedResources(ctx, client, required.groupVersion)
		if err != nil {
			return err
		}
		var missing []string
		for _, resource := range required.resources {
			if !slices.Contains(served, resource) {
				missing = append(missing, resource)
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("the API server does not serve %s in %s: %s",
				strings.Join(missing, ", "), required.groupVersion, required.remedy)
		}
	}
	return nil
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
