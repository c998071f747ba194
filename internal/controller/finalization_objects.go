// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CustomResourceDefinitions returns an empty object for watching and reading only the metadata of
// CustomResourceDefinitions.
func CustomResourceDefinitions() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
	}
}

// APIServices returns an empty object for watching and reading only the metadata of APIServices.
func APIServices() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "apiregistration.k8s.io/v1", Kind: "APIService"},
	}
}
