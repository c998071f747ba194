// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
)

const (
	// holdFinalizer is the finalizer of custom resources. The harness removes it.
	holdFinalizer = "bench.example.com/hold"
	// nodeName is the node to which the Pods are assigned.
	nodeName     = "bench-node"
	graceSeconds = 5

	crdVersion = "v1"
	// crdsPerGroup is the number of types in an API group.
	crdsPerGroup = 10
	// crowdNamespaces is the number of other namespaces with objects. Half of these objects are
	// ConfigMaps, and half are custom resources.
	crowdNamespaces = 50
	crowdPrefix     = "bench-crowd"
)

var crdResource = schema.GroupVersionResource{
	Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
}

// customType is the type that a CustomResourceDefinition defines.
func customType(i int) schema.GroupVersionResource {
	return schema.GroupVersionResource{
		Group:   fmt.Sprintf("group%02d.bench.example.com", i/crdsPerGroup),
		Version: crdVersion, Resource: fmt.Sprintf("widget%03ds", i),
	}
}

func customKind(i int) string { return fmt.Sprintf("Widget%03d", i) }

func newCRD(i int) *unstructured.Unstructured {
	gvr := customType(i)
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": crdResource.GroupVersion().String(),
		"kind":       "CustomResourceDefinition",
		"metadata":   map[string]any{"name": gvr.GroupResource().String()},
		"spec": map[string]any{
			"group": gvr.Group,
			"scope": "Namespaced",
			"names": map[string]any{
				"plural": gvr.Resource, "singular": strings.TrimSuffix(gvr.Resource, "s"), "kind": customKind(i),
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

func newCustomResource(i int, name string, finalizers ...string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"text": "nothing in particular"}}}
	object.SetAPIVersion(customType(i).GroupVersion().String())
	object.SetKind(customKind(i))
	object.SetName(name)
	object.SetFinalizers(finalizers)
	return object
}

// setCRDs creates or deletes CustomResourceDefinitions to reach the count, and waits until they are
// established or deleted.
func (c *cluster) setCRDs(ctx context.Context, count int) error {
	crds := c.dynamic.Resource(crdResource)
	before := c.crds
	c.crds = count
	if err := inParallel(ctx, count-before, func(ctx context.Context, i int) error {
		_, err := crds.Create(ctx, newCRD(before+i), metav1.CreateOptions{})
		return err
	}); err != nil {
		return fmt.Errorf("failed to create CustomResourceDefinitions: %w", err)
	}
	if err := inParallel(ctx, before-count, func(ctx context.Context, i int) error {
		return crds.Delete(ctx, customType(count+i).GroupResource().String(), metav1.DeleteOptions{})
	}); err != nil {
		return fmt.Errorf("failed to delete CustomResourceDefinitions: %w", err)
	}
	err := wait.PollUntilContextTimeout(ctx, pollInterval, setUpTimeout, true,
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
			return c.isDiscovered(count)
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
func (c *cluster) isDiscovered(count int) (bool, error) {
	_, lists, err := c.client.Discovery().ServerGroupsAndResources()
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

// fill creates the content of a namespace.
func (c *cluster) fill(ctx context.Context, namespace string, what content) error {
	for _, part := range []struct {
		count  int
		create func(ctx context.Context, namespace, name string) error
	}{
		{what.configMaps, c.createConfigMap},
		{what.secrets, c.createSecret},
		{what.services, c.createService},
		{what.deployments, c.createDeployment},
		{what.held, c.createHeld},
		{what.pods, c.createPod},
	} {
		names := makeNames("object", part.count)
		if err := inParallel(ctx, part.count, func(ctx context.Context, i int) error {
			return part.create(ctx, namespace, names[i])
		}); err != nil {
			return fmt.Errorf("failed to create the content of namespace %q: %w", namespace, err)
		}
	}
	return nil
}

func (c *cluster) createConfigMap(ctx context.Context, namespace, name string) error {
	_, err := c.client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"text": "nothing in particular"},
	}, metav1.CreateOptions{})
	return err
}

func (c *cluster) createSecret(ctx context.Context, namespace, name string) error {
	_, err := c.client.CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"text": "nothing in particular"},
	}, metav1.CreateOptions{})
	return err
}

// createService creates a headless Service, because the API server has only 254 cluster IPs.
func (c *cluster) createService(ctx context.Context, namespace, name string) error {
	_, err := c.client.CoreV1().Services(namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone},
	}, metav1.CreateOptions{})
	return err
}

func (c *cluster) createDeployment(ctx context.Context, namespace, name string) error {
	labels := map[string]string{"app": name}
	_, err := c.client.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: newContainers()},
			},
		},
	}, metav1.CreateOptions{})
	return err
}

func (c *cluster) createHeld(ctx context.Context, namespace, name string) error {
	_, err := c.dynamic.Resource(customType(0)).Namespace(namespace).Create(ctx,
		newCustomResource(0, name, holdFinalizer), metav1.CreateOptions{})
	return err
}

func (c *cluster) createPod(ctx context.Context, namespace, name string) error {
	_, err := c.client.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName: nodeName, TerminationGracePeriodSeconds: ptr.To[int64](graceSeconds), Containers: newContainers(),
		},
	}, metav1.CreateOptions{})
	return err
}

func newContainers() []corev1.Container {
	return []corev1.Container{{Name: "nothing", Image: "example.com/nothing"}}
}

// release removes the finalizers of the custom resources in a namespace. It ignores resources that
// no longer exist.
func (c *cluster) release(ctx context.Context, namespace string, count int) error {
	names := makeNames("object", count)
	err := inParallel(ctx, count, func(ctx context.Context, i int) error {
		_, err := c.dynamic.Resource(customType(0)).Namespace(namespace).Patch(ctx, names[i], types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("failed to remove finalizers in namespace %q: %w", namespace, err)
	}
	return nil
}

// setCrowd creates many objects in namespaces that are not deleted.
func (c *cluster) setCrowd(ctx context.Context) error {
	if c.crowd > 0 {
		return nil
	}
	c.crowd = crowdSize
	namespaces := makeNames(crowdPrefix, crowdNamespaces)
	if err := c.createNamespaces(ctx, namespaces); err != nil {
		return fmt.Errorf("failed to create namespaces for other objects: %w", err)
	}
	names := makeNames("object", crowdSize)
	err := inParallel(ctx, crowdSize, func(ctx context.Context, i int) error {
		namespace := namespaces[i/2%crowdNamespaces]
		if i%2 == 0 {
			return c.createConfigMap(ctx, namespace, names[i])
		}
		// Only half of the types have objects in other namespaces.
		kind := i / 2 % (manyCRDs / 2)
		_, err := c.dynamic.Resource(customType(kind)).Namespace(namespace).Create(ctx,
			newCustomResource(kind, names[i]), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("failed to create other objects: %w", err)
	}
	return nil
}
