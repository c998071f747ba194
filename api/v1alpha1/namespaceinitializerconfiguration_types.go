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

	InitializerSettings `json:",inline"`
}

// InitializerFailurePolicy says what becomes of a Namespace whose initializer does not do
// its work in time.
//
// +kubebuilder:validation:Enum=Fail;Ignore
type InitializerFailurePolicy string

// The failure policies.
const (
	// InitializerFail fails the initialization: the Namespace gets a result and is deleted.
	InitializerFail InitializerFailurePolicy = "Fail"
	// InitializerIgnore goes on without the initializer.
	InitializerIgnore InitializerFailurePolicy = "Ignore"
)

// InitializerSettings are what a configuration may say about an initializer beyond its name.
// Without any of them it is as the Namespace Initializer KEP has it: every new Namespace
// waits for it, for as long as it takes. Where several configurations name an initializer,
// the settings of the first one count.
//
// +kubebuilder:validation:XValidation:rule="!has(self.failurePolicy) || has(self.timeoutSeconds)",message="failurePolicy says what happens when the time is over: set timeoutSeconds as well, or leave failurePolicy out"
type InitializerSettings struct {
	// timeoutSeconds is how long a Namespace waits for the initializer once it has its turn,
	// in seconds. Then failurePolicy says what happens. It counts from when the operator saw
	// that the turn had come, and is never cut short. Without it a Namespace waits for as
	// long as it takes.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2592000
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`

	// failurePolicy is what happens when timeoutSeconds are over. With "Fail", which is the
	// default, the initialization has failed: the Namespace gets a result and is deleted.
	// With "Ignore" it goes on without this initializer, and a condition and an Event say so.
	//
	// +optional
	FailurePolicy *InitializerFailurePolicy `json:"failurePolicy,omitempty"`

	// finalizer is a token that every Namespace which gets the initializer has in
	// spec.finalizers from its creation on, such as "search.example.com/index". The Namespace
	// does not go before an agent has released it.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self != 'kubernetes'",message="finalizer \"kubernetes\" belongs to the namespace controller, and every namespace has it: use one of your own with a domain in front, such as \"search.example.com/index\""
	// +kubebuilder:validation:XValidation:rule="self == 'kubernetes' || self.indexOf('/') <= 253 && self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$')",message="a finalizer is a domain, \"/\" and a name of 1 to 63 letters, digits, \"-\", \"_\" and \".\", such as \"search.example.com/index\"",messageExpression="'finalizer \"' + self + '\" is no token for spec.finalizers of a namespace: use a domain, \"/\" and a name of 1 to 63 letters, digits, \"-\", \"_\" and \".\", such as \"search.example.com/index\"'"
	Finalizer string `json:"finalizer,omitempty"`

	// namespaceSelector limits the initializer to the Namespaces whose labels match in the
	// request that creates them. Whoever creates a Namespace chooses its labels, so this is
	// no means to enforce anything. Without it every new Namespace gets the initializer.
	//
	// +optional
	NamespaceSelector *NamespaceSelector `json:"namespaceSelector,omitempty"`
}

// NamespaceSelector selects Namespaces by their labels, as metav1.LabelSelector does. All
// requirements have to be met; an empty selector selects every Namespace. Its size is
// bounded, since admission evaluates it.
type NamespaceSelector struct {
	// matchLabels are labels that the Namespace must have with these values.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.indexOf('/') <= 253 && k.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$'))",message="a key of matchLabels is no key of a label: use a name of 1 to 63 letters, digits, \"-\", \"_\" and \".\", with or without a domain and \"/\" in front"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('nslifecycle.dev/') || k == 'nslifecycle.dev/deletion-protection')",message="namespaceSelector cannot select by labels under nslifecycle.dev/, which a new namespace does not have yet: use a label of your own"
	MatchLabels map[string]LabelValue `json:"matchLabels,omitempty"`

	// matchExpressions are further requirements.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	MatchExpressions []NamespaceSelectorRequirement `json:"matchExpressions,omitempty"`
}

// LabelValue is the value of a label. It has a pattern and no rule, as the keys below, since the
// API server's estimate of costs does not allow for rules on as many values as a set can have.
//
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`
type LabelValue string

// NamespaceSelectorRequirement is what one label of a Namespace must meet.
//
// +kubebuilder:validation:XValidation:rule="self.operator in ['In', 'NotIn'] ? has(self.values) && self.values.size() > 0 : !has(self.values) || self.values.size() == 0",message="operators In and NotIn need values, and Exists and DoesNotExist take none"
type NamespaceSelectorRequirement struct {
	// key is the key of the label.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$`
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('nslifecycle.dev/') || self == 'nslifecycle.dev/deletion-protection'",message="namespaceSelector cannot select by labels under nslifecycle.dev/, which a new namespace does not have yet: use a label of your own"
	Key string `json:"key"`

	// operator relates the label to the values.
	// +required
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
	Operator metav1.LabelSelectorOperator `json:"operator"`

	// values are those of operators In and NotIn. A Namespace without the label meets NotIn.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Values []LabelValue `json:"values,omitempty"`
}

// NamespaceInitializerConfigurationStatus says what became of a configuration.
type NamespaceInitializerConfigurationStatus struct {
	// conditions tell the state of the configuration. "Active" is True while every new
	// Namespace gets the initializers of this configuration, and False with a reason
	// otherwise. "Healthy" is False where somebody is missing who does their work.
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
// +kubebuilder:resource:scope=Cluster,shortName=nsinit,categories=nslifecycle
// +kubebuilder:printcolumn:name="Active",type=string,JSONPath=`.status.conditions[?(@.type=="Active")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Active")].reason`
// +kubebuilder:printcolumn:name="Healthy",type=string,JSONPath=`.status.conditions[?(@.type=="Healthy")].status`
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
