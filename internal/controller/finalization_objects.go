// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

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
