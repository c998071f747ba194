// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is internal.nslifecycle.dev/v1alpha1.
	GroupVersion = schema.GroupVersion{Group: "internal.nslifecycle.dev", Version: "v1alpha1"}

	schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)
	// AddToScheme adds the types of this package to a scheme.
	AddToScheme = schemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &NamespaceInitializerSet{}, &NamespaceInitializerSetList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
