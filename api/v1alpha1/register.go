// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is nslifecycle.dev/v1alpha1.
	GroupVersion = schema.GroupVersion{Group: "nslifecycle.dev", Version: "v1alpha1"}
	// SchemeGroupVersion is an alias for GroupVersion that generated code uses.
	SchemeGroupVersion = GroupVersion

	schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)
	// AddToScheme adds the types of this package to a scheme.
	AddToScheme = schemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&NamespaceInitializerConfiguration{}, &NamespaceInitializerConfigurationList{},
		&NamespaceTemplate{}, &NamespaceTemplateList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
