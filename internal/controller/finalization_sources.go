// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func requestFor(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

// liveNamespaces reads Namespaces from the API server.
type liveNamespaces struct{ reader client.Reader }

func (l liveNamespaces) Get(ctx context.Context, name string) (*corev1.Namespace, error) {
	namespace := &corev1.Namespace{}
	return namespace, l.reader.Get(ctx, client.ObjectKey{Name: name}, namespace)
}

// automanagedLabel is the label of the APIServices that kube-apiserver creates for the groups that it
// serves itself, including those of CustomResourceDefinitions.
const automanagedLabel = "kube-aggregator.kubernetes.io/automanaged"

// isAggregated returns a function that reports whether an aggregated API server serves a group version,
// from the cached APIServices. It is true if the APIService cannot be read.
func isAggregated(reader client.Reader) func(schema.GroupVersion) bool {
	return func(groupVersion schema.GroupVersion) bool {
		service := apiServices()
		key := client.ObjectKey{Name: groupVersion.Version + "." + groupVersion.Group}
		err := reader.Get(context.Background(), key, service)
		return err != nil || service.Labels[automanagedLabel] == ""
	}
}

// customResourceDefinitions and apiServices are watched as metadata, because only the fact of a change
// matters.
func customResourceDefinitions() *metav1.PartialObjectMetadata {
	return partialMetadata(schema.GroupVersionKind{
		Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition",
	})
}

func apiServices() *metav1.PartialObjectMetadata {
	return partialMetadata(schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"})
}

func partialMetadata(kind schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	return object
}
