// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
)

const (
	// holdFinalizer is the finalizer of custom resources. The harness removes it.
	holdFinalizer = "bench.example.com/hold"
	// nodeName is the node to which the Pods are assigned.
	nodeName     = "bench-node"
	graceSeconds = 5

	// crowdNamespaces is the number of other namespaces with objects. Half of these objects are
	// ConfigMaps, and half are custom resources.
	crowdNamespaces = 50
	crowdPrefix     = "bench-crowd"
)

// setCRDs creates or deletes CustomResourceDefinitions to reach the count.
func (c *cluster) setCRDs(ctx context.Context, count int) error {
	before := c.crds
	c.crds = count
	return harness.SetCRDs(ctx, c.dynamic, c.client.Discovery(), before, count)
}

func newCustomResource(i int, name string, finalizers ...string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"text": "nothing in particular"}}}
	object.SetAPIVersion(harness.CustomType(i).GroupVersion().String())
	object.SetKind(harness.CustomKind(i))
	object.SetName(name)
	object.SetFinalizers(finalizers)
	return object
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
		if err := harness.InParallel(ctx, part.count, func(ctx context.Context, i int) error {
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
	_, err := c.dynamic.Resource(harness.CustomType(0)).Namespace(namespace).Create(ctx,
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
	err := harness.InParallel(ctx, count, func(ctx context.Context, i int) error {
		_, err := c.dynamic.Resource(harness.CustomType(0)).Namespace(namespace).Patch(ctx, names[i], types.MergePatchType,
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
	err := harness.InParallel(ctx, crowdSize, func(ctx context.Context, i int) error {
		namespace := namespaces[i/2%crowdNamespaces]
		if i%2 == 0 {
			return c.createConfigMap(ctx, namespace, names[i])
		}
		// Only half of the types have objects in other namespaces.
		kind := i / 2 % (manyCRDs / 2)
		_, err := c.dynamic.Resource(harness.CustomType(kind)).Namespace(namespace).Create(ctx,
			newCustomResource(kind, names[i]), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("failed to create other objects: %w", err)
	}
	return nil
}
