// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NamespaceInitializer registers a controller that prepares new Namespaces.
type NamespaceInitializer struct {
	// name identifies the initializer in the list of pending initializers of a Namespace. It must be
	// fully qualified, with at least three dot-separated DNS labels, and must end with a domain that
	// the author of the initializer owns. Example: "quota.policy.example.com".
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!self.contains(',')",message="the name of an initializer must not contain a comma: list each initializer as a separate entry",messageExpression="'initializer name \"' + self + '\" contains a comma: list each initializer as a separate entry'"
	// +kubebuilder:validation:XValidation:rule="self.contains(',') || self.matches('[.].*[.]')",message="the name of an initializer must be fully qualified: use at least three dot-separated parts, such as \"quota.policy.example.com\"",messageExpression="'initializer name \"' + self + '\" is not fully qualified: use at least three dot-separated parts, such as \"quota.policy.example.com\"'"
	// +kubebuilder:validation:XValidation:rule="self.contains(',') || self.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?([.][a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$')",message="the name of an initializer must be a DNS name: each dot-separated part must consist of 1 to 63 lower case letters, digits and \"-\", and must begin and end with a letter or a digit",messageExpression="'initializer name \"' + self + '\" is not a DNS name: each dot-separated part must consist of 1 to 63 lower case letters, digits and \"-\", and must begin and end with a letter or a digit'"
	Name string `json:"name"`

	InitializerSettings `json:",inline"`
}

// FailurePolicy specifies what happens to an initializing Namespace after a timeout.
//
// +kubebuilder:validation:Enum=Fail;Ignore
type FailurePolicy string

// The failure policies.
const (
	// FailurePolicyFail fails the initialization: the Namespace gets a failure result and is deleted.
	FailurePolicyFail FailurePolicy = "Fail"
	// FailurePolicyIgnore continues the initialization without waiting any longer.
	FailurePolicyIgnore FailurePolicy = "Ignore"
)

// InitializerConfinement specifies which writes the subjects of an initializer are limited to.
//
// +kubebuilder:validation:Enum=None;InitializingNamespaces
type InitializerConfinement string

// The confinements.
const (
	// ConfinementNone does not limit the subjects.
	ConfinementNone InitializerConfinement = "None"
	// ConfinementInitializingNamespaces limits the subjects to namespaces that wait for their initializers.
	ConfinementInitializingNamespaces InitializerConfinement = "InitializingNamespaces"
)

// InitializerSettings are the optional settings of an initializer. The defaults are the behavior
// that the Namespace Initializer KEP describes: every new Namespace waits for the initializer
// without a time limit. If several configurations register an initializer, the settings in the
// first one apply.
//
// +kubebuilder:validation:XValidation:rule="!has(self.failurePolicy) || self.failurePolicy != 'Ignore' || has(self.timeoutSeconds)",fieldPath=".timeoutSeconds",reason=FieldValueRequired,message="failurePolicy Ignore applies only after a timeout: also set timeoutSeconds, or remove failurePolicy"
// +kubebuilder:validation:XValidation:rule="!has(self.confinement) || self.confinement == 'None' || has(self.subjects)",fieldPath=".subjects",reason=FieldValueRequired,message="confinement limits the writes of the subjects: also set subjects, or remove confinement"
// +kubebuilder:validation:XValidation:rule="!has(self.confinement) || self.confinement == 'None' || !has(self.subjects) || self.subjects.all(s, s.kind == 'ServiceAccount')",fieldPath=".subjects",reason=FieldValueForbidden,message="confinement requires subjects of kind ServiceAccount: users and groups can be administrators and components of Kubernetes"
// +kubebuilder:validation:XValidation:rule="!has(self.confinement) || self.confinement == 'None' || !has(self.subjects) || self.subjects.all(s, !has(s.__namespace__) || s.__namespace__ != 'kube-system')",fieldPath=".subjects",reason=FieldValueForbidden,message="confinement cannot apply to ServiceAccounts in kube-system, which are components of Kubernetes: use a ServiceAccount in another namespace"
type InitializerSettings struct {
	// timeoutSeconds is the time in seconds that a Namespace waits, counted from the start of the
	// initializer's turn. After this time, failurePolicy applies. The time starts when the operator observes
	// the turn, so the Namespace might wait longer, but never less. A change also applies to Initializing
	// Namespaces; if it was not set before, the time starts when the operator observes the change. If it is
	// not set, there is no limit.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2592000
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`

	// failurePolicy specifies what happens after timeoutSeconds. "Fail" fails the initialization: the
	// Namespace gets a failure result and is deleted. "Ignore" continues the initialization, and the
	// operator reports this. It has no effect without timeoutSeconds. The default is "Fail".
	//
	// +optional
	FailurePolicy FailurePolicy `json:"failurePolicy,omitempty"`

	// namespaceFinalizer is an entry of spec.finalizers, such as "search.example.com/index", that every
	// Namespace with this initializer gets when it is created. The Namespace is not deleted until the
	// controller responsible for the finalizer removes it.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self != 'kubernetes'",message="finalizer \"kubernetes\" belongs to the namespace controller, and every namespace has it: use a finalizer with a domain that you own, such as \"search.example.com/index\""
	// +kubebuilder:validation:XValidation:rule="self == 'kubernetes' || self.indexOf('/') <= 253 && self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$')",message="a finalizer is a domain, \"/\" and a name of 1 to 63 letters, digits, \"-\", \"_\" and \".\", such as \"search.example.com/index\"",messageExpression="'finalizer \"' + self + '\" is not valid in spec.finalizers of a namespace: use a domain, \"/\" and a name of 1 to 63 letters, digits, \"-\", \"_\" and \".\", such as \"search.example.com/index\"'"
	NamespaceFinalizer string `json:"namespaceFinalizer,omitempty"`

	// subjects are the users, groups and ServiceAccounts that implement the initializer. If set, only
	// they can remove the initializer from the pending list, and only when it is first in the list. They
	// still need the "initialize" verb. If it is not set, every holder of the verb can remove it at any
	// time. The operator itself always can, for example after a timeout.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Subjects []Subject `json:"subjects,omitempty"`

	// confinement limits what the subjects can write, in addition to RBAC. With "None", the default, their
	// permissions apply to every namespace at any time. With "InitializingNamespaces", the API server rejects
	// all requests by the subjects except
	//
	// - reads and access reviews,
	// - requests for objects in initializing namespaces whose pending list contains an initializer of the subject,
	// - changes to the Namespaces that have such an initializer: its removal from the pending list and a failure
	//   result while it is pending, and its condition "<initializer>/Initialized",
	// - requests for objects in the namespace of the ServiceAccount, and Events about Namespaces in "default".
	//
	// It requires subjects, all of kind ServiceAccount and not in kube-system. A user who adds such a subject must be
	// allowed to impersonate the ServiceAccount. A subject is confined in all of its requests if any initializer confines
	// it. Its initializers are those that contain it in their subjects, as ServiceAccount or User. ServiceAccounts in the
	// namespace of the operator, and those that may delete the admission policy for confined initializers, are not
	// confined. Confinement does not limit the permission to impersonate other users. The default is
	// "None".
	//
	// +optional
	Confinement InitializerConfinement `json:"confinement,omitempty"`

	// namespaceSelector limits the initializer to Namespaces whose labels in the create request match.
	// The empty selector, which is the default, selects every new Namespace. Users choose the labels of
	// the Namespaces that they create, so a selector does not enforce anything.
	//
	// +optional
	NamespaceSelector *NamespaceSelector `json:"namespaceSelector,omitempty"`
}

// DefaultInitializerSettings returns the settings of an initializer without any. They are the behavior that the Namespace
// Initializer KEP describes: every new Namespace waits, without a time limit.
func DefaultInitializerSettings() InitializerSettings {
	return InitializerSettings{
		FailurePolicy: FailurePolicyFail, Confinement: ConfinementNone, NamespaceSelector: &NamespaceSelector{},
	}
}

// SubjectKind is the kind of a Subject.
//
// +kubebuilder:validation:Enum=User;Group;ServiceAccount
type SubjectKind string

// The kinds of subjects.
const (
	// SubjectUser identifies a user by name.
	SubjectUser SubjectKind = "User"
	// SubjectGroup identifies all users in a group.
	SubjectGroup SubjectKind = "Group"
	// SubjectServiceAccount identifies a ServiceAccount by namespace and name.
	SubjectServiceAccount SubjectKind = "ServiceAccount"
)

// Subject identifies a user, a group or a ServiceAccount, like rbacv1.Subject.
//
// +kubebuilder:validation:XValidation:rule="self.kind != 'ServiceAccount' || has(self.__namespace__)",fieldPath=".namespace",reason=FieldValueRequired,message="set the namespace of the ServiceAccount"
// +kubebuilder:validation:XValidation:rule="self.kind == 'ServiceAccount' || !has(self.__namespace__)",fieldPath=".namespace",reason=FieldValueForbidden,message="a User or a Group has no namespace: remove it"
// +kubebuilder:validation:XValidation:rule="self.kind != 'ServiceAccount' || self.name.size() <= 253 && !self.name.contains(':')",fieldPath=".name",message="the name of a ServiceAccount has at most 253 characters and no colon: set its namespace in the field namespace"
// +kubebuilder:validation:XValidation:rule="!has(self.apiGroup) || self.apiGroup.size() == 0 || self.kind != 'ServiceAccount' && self.apiGroup == 'rbac.authorization.k8s.io'",fieldPath=".apiGroup",message="the API group of a ServiceAccount is \"\", that of a User or a Group is \"rbac.authorization.k8s.io\"",messageExpression="'the API group of a ' + self.kind + ' is ' + (self.kind == 'ServiceAccount' ? '\"\"' : '\"rbac.authorization.k8s.io\"')"
type Subject struct {
	// kind is "User", "Group" or "ServiceAccount".
	// +required
	Kind SubjectKind `json:"kind"`

	// apiGroup can be set as in RBAC: "" for a ServiceAccount, "rbac.authorization.k8s.io" for a User or a
	// Group. It has no effect.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	APIGroup string `json:"apiGroup,omitempty"`

	// name is the name of the user, the group or the ServiceAccount.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Name string `json:"name"`

	// namespace is the namespace of the ServiceAccount.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace,omitempty"`
}

// NamespaceSelector selects Namespaces by their labels, like metav1.LabelSelector. All requirements
// must be met. An empty selector selects every Namespace. The size of a selector is limited because
// it is evaluated at admission.
//
// +structType=atomic
type NamespaceSelector struct {
	// matchLabels are the labels that the Namespace must have, with their values.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.indexOf('/') <= 253 && k.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$'))",message="a key in matchLabels is not a valid label key: use a name of 1 to 63 letters, digits, \"-\", \"_\" and \".\", optionally with a domain and \"/\" as prefix"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('nslifecycle.dev/') || k == 'nslifecycle.dev/deletion-protection')",message="a selector cannot contain labels with the prefix nslifecycle.dev/, except nslifecycle.dev/deletion-protection: use another label"
	MatchLabels map[string]LabelValue `json:"matchLabels,omitempty"`

	// matchExpressions are additional requirements.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	MatchExpressions []NamespaceSelectorRequirement `json:"matchExpressions,omitempty"`
}

// LabelValue is the value of a label. It is validated by a pattern, because the estimated cost of a
// CEL rule for the maximum number of values would exceed the API server's limit.
//
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`
type LabelValue string

// NamespaceSelectorRequirement is a requirement for one label of a Namespace.
//
// +kubebuilder:validation:XValidation:rule="has(self.values) || !(self.operator in ['In', 'NotIn'])",fieldPath=".values",reason=FieldValueRequired,message="the operators In and NotIn require values"
// +kubebuilder:validation:XValidation:rule="!has(self.values) || self.operator in ['In', 'NotIn']",fieldPath=".values",reason=FieldValueForbidden,message="the operators Exists and DoesNotExist have no values"
type NamespaceSelectorRequirement struct {
	// key is the key of the label.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$`
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('nslifecycle.dev/') || self == 'nslifecycle.dev/deletion-protection'",message="a selector cannot contain labels with the prefix nslifecycle.dev/, except nslifecycle.dev/deletion-protection: use another label"
	Key string `json:"key"`

	// operator is the relation between the label and the values.
	// +required
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
	Operator metav1.LabelSelectorOperator `json:"operator"`

	// values are the values for the operators In and NotIn. NotIn also matches Namespaces without the
	// label.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Values []LabelValue `json:"values,omitempty"`
}

// NamespaceInitializerConfigurationStatus is the observed state of a configuration.
type NamespaceInitializerConfigurationStatus struct {
	// observedGeneration is the metadata.generation that the conditions are computed from. It is -1
	// until the operator has observed the configuration.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are the observed conditions. "Ready" summarizes the others. "Active" is True while
	// every new Namespace gets the initializers of this configuration. "Healthy" is False if an
	// initializer is unresponsive or lacks permissions. "Stalled" exists, and is True, only while the
	// configuration cannot become ready unless a user acts.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NamespaceInitializerConfiguration registers initializers. Every Namespace that is created
// afterwards waits for them; existing Namespaces are not affected.
//
// The fields are at the top level, without spec, as in the Namespace Initializer KEP.
//
// The initializers of all configurations are merged into one list: configurations are sorted by
// name, and the order within each configuration is preserved. Only the first entry for each
// initializer is used (Namespace Initializer KEP, "Core Kubernetes Changes").
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=nsinit,categories=nslifecycle
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Active",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Active")].status`
// +kubebuilder:printcolumn:name="Healthy",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Healthy")].status`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NamespaceInitializerConfiguration struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// initializers are the initializers that every new Namespace waits for, in the order in which
	// they run. An empty list registers no initializers.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Initializers []NamespaceInitializer `json:"initializers,omitempty"`

	// waitingSubjects are users, groups and ServiceAccounts that must wait for the initialization like
	// all other users, although they hold the "initialize" verb. Use it for GitOps controllers, whose
	// ClusterRole often contains every verb on every resource. They also cannot change the pending
	// list. The subjects of all configurations are merged.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="!self.exists(s, s.kind == 'Group' && s.name in ['system:authenticated', 'system:masters', 'system:serviceaccounts', 'system:serviceaccounts:kube-system'])",message="waitingSubjects cannot contain system:authenticated, system:masters, system:serviceaccounts or system:serviceaccounts:kube-system: these groups contain initializers, administrators and the controllers of Kubernetes"
	WaitingSubjects []Subject `json:"waitingSubjects,omitempty"`

	// status is the observed state of the configuration.
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
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
