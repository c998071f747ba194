// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
)

const (
	crdVersion = "v1"
	// crdsPerGroup is the number of types in an API group.
	crdsPerGroup = 10

	crdPollInterval = 250 * time.Millisecond
	// crdTimeout is the maximum time until CustomResourceDefinitions are established or deleted.
	crdTimeout = 5 * time.Minute
)

var crdResource = schema.GroupVersionResource{
	Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
}

// CustomType returns the type that a CustomResourceDefinition defines.
func CustomType(i int) schema.GroupVersionResource {
	return schema.GroupVersionResource{
		Group:   fmt.Sprintf("group%02d.bench.example.com", i/crdsPerGroup),
		Version: crdVersion, Resource: fmt.Sprintf("widget%03ds", i),
	}
}

// CustomKind returns the kind of CustomType.
func CustomKind(i int) string { return fmt.Sprintf("Widget%03d", i) }

func newCRD(i int) *unstructured.Unstructured {
	gvr := CustomType(i)
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": crdResource.GroupVersion().String(),
		"kind":       "CustomResourceDefinition",
		"metadata":   map[string]any{"name": gvr.GroupResource().String()},
		"spec": map[string]any{
			"group": gvr.Group,
			"scope": "Namespaced",
			"names": map[string]any{
				"plural": gvr.Resource, "singular": strings.TrimSuffix(gvr.Resource, "s"), "kind": CustomKind(i),
			},
			"versions": []any{map[string]any{
				"name": crdVersion, "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object", "x-kubernetes-preserve-unknown-fields": true,
				}},
			}},
		},
	}}
}

// SetCRDs creates or deletes CustomResourceDefinitions, so that there are no longer as many as before,
// but the given count. It waits until they are established or deleted.
func SetCRDs(
	ctx context.Context, client dynamic.Interface, discover discovery.DiscoveryInterface, before, count int,
) error {
	crds := client.Resource(crdResource)
	if err := InParallel(ctx, count-before, func(ctx context.Context, i int) error {
		_, err := crds.Create(ctx, newCRD(before+i), metav1.CreateOptions{})
		return err
	}); err != nil {
		return fmt.Errorf("failed to create CustomResourceDefinitions: %w", err)
	}
	if err := InParallel(ctx, before-count, func(ctx context.Context, i int) error {
		return crds.Delete(ctx, CustomType(count+i).GroupResource().String(), metav1.DeleteOptions{})
	}); err != nil {
		return fmt.Errorf("failed to delete CustomResourceDefinitions: %w", err)
	}
	err := wait.PollUntilContextTimeout(ctx, crdPollInterval, crdTimeout, true,
		func(ctx context.Context) (bool, error) {
			list, err := crds.List(ctx, metav1.ListOptions{})
			if err != nil || len(list.Items) != count {
				return false, err
			}
			for i := range list.Items {
				if !isEstablished(&list.Items[i]) {
					return false, nil
				}
			}
			return isDiscovered(discover, count)
		})
	if err != nil {
		return fmt.Errorf("failed to wait for %d established CustomResourceDefinitions: %w", count, err)
	}
	return nil
}

func isEstablished(crd *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	for _, entry := range conditions {
		condition, ok := entry.(map[string]any)
		if ok && condition["type"] == "Established" && condition["status"] == "True" {
			return true
		}
	}
	return false
}

// isDiscovered reports whether discovery returns the given number of the benchmark's types.
func isDiscovered(discover discovery.DiscoveryInterface, count int) (bool, error) {
	_, lists, err := discover.ServerGroupsAndResources()
	if err != nil {
		return false, fmt.Errorf("failed to discover the types: %w", err)
	}
	found := 0
	for _, list := range lists {
		if strings.Contains(list.GroupVersion, ".bench.example.com/") {
			found += len(list.APIResources)
		}
	}
	return found == count, nil
}
