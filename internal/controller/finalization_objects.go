// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// LiveNamespaces reads Namespaces from the API server instead of a cache.
type LiveNamespaces struct{ Reader client.Reader }

// Get returns a Namespace.
func (l LiveNamespaces) Get(ctx context.Context, name string) (*corev1.Namespace, error) {
	namespace := &corev1.Namespace{}
	return namespace, l.Reader.Get(ctx, client.ObjectKey{Name: name}, namespace)
}

// CustomResourceDefinitions returns an object for watches and reads of metadata.
func CustomResourceDefinitions() *metav1.PartialObjectMetadata {
	return partialObjectMetadata(schema.GroupVersionKind{
		Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition",
	})
}

// APIServices returns an object for watches and reads of metadata.
func APIServices() *metav1.PartialObjectMetadata {
	return partialObjectMetadata(schema.GroupVersionKind{
		Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService",
	})
}

func partialObjectMetadata(kind schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	return object
}
