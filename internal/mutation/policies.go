// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package mutation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/config/mutating"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
)

const policyKind = "MutatingAdmissionPolicy"

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

// manifests returns the policies in config/mutating, each before its binding.
func manifests() []*unstructured.Unstructured {
	var objects []*unstructured.Unstructured
	for _, manifest := range [][]byte{mutating.Complete, mutating.RequireSet, mutating.Inject} {
		decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(string(manifest)), len(manifest))
		for {
			object := &unstructured.Unstructured{}
			err := decoder.Decode(object)
			if errors.Is(err, io.EOF) {
				break
			}
			utilruntime.Must(err) // The manifests are part of the program.
			objects = append(objects, object)
		}
	}
	return objects
}

// policy returns a policy in config/mutating.
func policy(name string) *admissionv1.MutatingAdmissionPolicy {
	decoded := &admissionv1.MutatingAdmissionPolicy{}
	for _, object := range manifests() {
		if object.GetKind() == policyKind && object.GetName() == name {
			utilruntime.Must(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, decoded))
		}
	}
	return decoded
}

// applyPolicies applies the policies and bindings that differ from config/mutating.
func (i *Installer) applyPolicies(ctx context.Context, owner *admissionv1.MutatingWebhookConfiguration) error {
	for _, desired := range manifests() {
		key := desired.GetKind() + "/" + desired.GetName()
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(desired.GroupVersionKind())
		err := i.Live.Get(ctx, client.ObjectKeyFromObject(desired), live)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("failed to get %s: %w", key, err)
		}
		// The operator sets failurePolicy of inject to Fail later, and must not reset it.
		if current, found, _ := unstructured.NestedString(live.Object, "spec", "failurePolicy"); found {
			utilruntime.Must(unstructured.SetNestedField(desired.Object, current, "spec", "failurePolicy"))
		}
		desired.SetOwnerReferences([]metav1.OwnerReference{{
			APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "MutatingWebhookConfiguration",
			Name: owner.Name, UID: owner.UID,
		}})
		if err == nil && isCurrent(desired, live) {
			continue
		}
		err = i.Apply(ctx, client.ApplyConfigurationFromUnstructured(desired),
			client.FieldOwner(nsobject.FieldOwner), client.ForceOwnership)
		if apierrors.IsForbidden(err) {
			return nil // An administrator applies the policies. The caller verifies that they exist.
		}
		if err != nil {
			return fmt.Errorf("failed to apply %s: %w", key, err)
		}
	}
	return nil
}

// isCurrent reports whether applying the desired object would change nothing.
func isCurrent(desired, live *unstructured.Unstructured) bool {
	labels := live.GetLabels()
	for key, value := range desired.GetLabels() {
		if labels[key] != value {
			return false
		}
	}
	return apiequality.Semantic.DeepEqual(desired.GetOwnerReferences(), live.GetOwnerReferences()) &&
		isEqual(desired.Object["spec"], live.Object["spec"])
}

// isEqual compares JSON values. The live value can also contain default values.
func isEqual(desired, live any) bool {
	switch desired := desired.(type) {
	case map[string]any:
		live, ok := live.(map[string]any)
		for key, value := range live {
			if _, isDesired := desired[key]; !isDesired && !isDefault(value) {
				return false
			}
		}
		for key, value := range desired {
			if !ok || !isEqual(value, live[key]) {
				return false
			}
		}
		return ok
	case []any:
		live, ok := live.([]any)
		return ok && slices.EqualFunc(desired, live, isEqual)
	}
	return desired == live
}

// isDefault reports whether the API server adds a value: an empty selector, or matchPolicy Equivalent.
func isDefault(value any) bool {
	object, ok := value.(map[string]any)
	return ok && len(object) == 0 || value == string(admissionv1.Equivalent)
}
