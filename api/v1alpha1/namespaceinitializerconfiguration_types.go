// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NamespaceInitializer names a controller that prepares new Namespaces.
type NamespaceInitializer struct {
	// name is the identifier of the initializer, as it appears in a Namespace's
	// list of pending initializers. It is fully qualified: at least three
	// dot-separated DNS labels, such as "quota.policy.example.com", of which the
	// last ones are a domain that belongs to whoever wrote the initializer.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!self.contains(',')",message="the name of an initializer contains no comma: list each initializer as an entry of its own",messageExpression="'initializer name \"' + self + '\" contains a comma: list each initializer as an entry of its own'"
	// +kubebuilder:validation:XValidation:rule="self.contains(',') || self.matches('[.].*[.]')",message="the name of an initializer must be fully qualified: use at least three dot-separated parts, such as \"quota.policy.example.com\"",messageExpression="'initializer name \"' + self + '\" is not fully qualified: use at least three dot-separated parts, such as \"quota.policy.example.com\"'"
	// +kubebuilder:validation:XValidation:rule="self.contains(',') || self.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?([.][a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$')",message="the name of an initializer is a DNS name: each dot-separated part takes 1 to 63 lower case letters, digits and \"-\", and begins and ends with a letter or a digit",messageExpression="'initializer name \"' + self + '\" is not a DNS name: each dot-separated part takes 1 to 63 lower case letters, digits and \"-\", and begins and ends with a letter or a digit'"
	Name string `json:"name"`
}

// NamespaceInitializerConfigurationStatus says what became of a configuration.
type NamespaceInitializerConfigurationStatus struct {
	// conditions tell the state of the configuration. The type is "Active": True
	// while every new Namespace gets the initializers of this configuration, False
	// with a reason otherwise.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NamespaceInitializerConfiguration registers initializers: every Namespace that
// is created from then on has to wait for them. Namespaces that exist already are
// not touched.
//
// The initializers of all configurations make one list: sorted by the name of the
// configuration, in the given order inside one, each initializer once, at its
// first place (Namespace Initializer KEP, "Core Kubernetes Changes").
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=nic,categories=nslifecycle
// +kubebuilder:printcolumn:name="Active",type=string,JSONPath=`.status.conditions[?(@.type=="Active")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Active")].reason`
// +kubebuilder:printcolumn:name="Initializers",type=string,priority=1,JSONPath=`.initializers`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NamespaceInitializerConfiguration struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// initializers are the initializers that every new Namespace waits for, in the
	// order in which they act. An empty list registers nothing.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Initializers []NamespaceInitializer `json:"initializers,omitempty"`

	// status says whether the configuration is in force.
	// +optional
	Status NamespaceInitializerConfigurationStatus `json:"status,omitempty"`
}

// NamespaceInitializerConfigurationList is a list of configurations.
//
// +kubebuilder:object:root=true
type NamespaceInitializerConfigurationList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NamespaceInitializerConfiguration `json:"items"`
}
