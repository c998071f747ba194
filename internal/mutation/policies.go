// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package mutation

import (
	"context"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/config/mutating"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/policyapply"
)

// Objects returns an empty object of each type of mutating policy and binding.
func Objects() []client.Object {
	return []client.Object{&admissionv1.MutatingAdmissionPolicy{}, &admissionv1.MutatingAdmissionPolicyBinding{}}
}

// ServesPolicies reports whether the API server serves MutatingAdmissionPolicy v1. It does not use the version of the
// API server, because a type can be disabled.
func ServesPolicies(ctx context.Context, api discovery.DiscoveryInterfaceWithContext) (bool, error) {
	missing, err := MissingResources(ctx, api, admissionv1.SchemeGroupVersion,
		"mutatingadmissionpolicies", "mutatingadmissionpolicybindings")
	return len(missing) == 0, err
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

// Policies returns the policies in config/mutating with their bindings, except that of inject, which does not reject
// namespaces yet.
func Policies() []*unstructured.Unstructured {
	objects := policyapply.Decode(mutating.Complete, mutating.RequireSet, mutating.Inject)
	for _, object := range objects {
		if object.GetName() == internalv1alpha1.InjectConfiguration {
			utilruntime.Must(unstructured.SetNestedField(object.Object, string(admissionv1.Ignore), "spec", "failurePolicy"))
		}
	}
	return objects
}

// Binding returns the binding of inject.
func Binding() []*unstructured.Unstructured { return policyapply.Decode(mutating.InjectBinding) }
