// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// EffectiveSetName is the name of the only NamespaceInitializerSet.
const EffectiveSetName = "effective"

// Condition types of the set.
const (
	// ConditionEnforced is True while every new Namespace gets the initializers of the set, and early writes are denied.
	ConditionEnforced = "Enforced"
	// ConditionDeletionProtectionEnforced is True while API servers enforce the optional policy PolicyProtection. The
	// policy PolicyUnusedSettings reads it.
	ConditionDeletionProtectionEnforced = "DeletionProtectionEnforced"
)

// MaxInitializers is the maximum number of initializers in the set, and therefore of one
// Namespace. Their names, of up to 253 bytes each, are written to two annotations. Both must stay
// well below the API server's limit of 256 KiB for all annotations.
const MaxInitializers = 256

// MaxWaitingSubjects is the maximum number of waiting subjects in the set. The admission policies
// compare the user of a request with each of them.
const MaxWaitingSubjects = 256

// MaxConfinedBytes is the maximum size of the confined subjects with the names of their initializers. They are part of
// a CEL expression, which the API server limits to 100000 characters.
const MaxConfinedBytes = 64 << 10

// MaxTemplates is the maximum number of templates in the set. The admission policies compare the
// labels of each new Namespace with the selector of each template.
const MaxTemplates = 128

// EffectiveTemplate is the part of a NamespaceTemplate that the admission policies use.
type EffectiveTemplate struct {
	// name is the name of the template.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// namespaceSelector is the selector of the template.
	// +optional
	NamespaceSelector *v1alpha1.NamespaceSelector `json:"namespaceSelector,omitempty"`

	// access is the access of the template.
	// +optional
	Access v1alpha1.TemplateAccess `json:"access,omitempty"`

	// parameters are the parameters of the template, without descriptions. Exactly those that are lists have maxItems.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Parameters []v1alpha1.TemplateParameter `json:"parameters,omitempty"`

	// labels are the labels of new Namespaces.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +kubebuilder:validation:MaxItems=16
	Labels []EffectiveValue `json:"labels,omitempty"`

	// annotations are the annotations of new Namespaces.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +kubebuilder:validation:MaxItems=16
	Annotations []EffectiveValue `json:"annotations,omitempty"`

	// lock specifies which changes of the labels and annotations are rejected.
	// +optional
	Lock v1alpha1.ObjectLock `json:"lock,omitempty"`
}

// EffectiveValue is a label or an annotation that a template sets. It is not set if a part that is not a text is empty.
type EffectiveValue struct {
	// key is the key of the label or annotation. A NamespaceTemplate cannot set others either: the writer of the set
	// has no more power over new Namespaces than an author of templates.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="!self.matches('^(kubernetes[.]io|kubectl[.]kubernetes[.]io|(.*[.])?nslifecycle[.]dev)/')",message="a template cannot set keys with the prefix kubernetes.io/, kubectl.kubernetes.io/ or nslifecycle.dev/"
	Key string `json:"key"`

	// parts are joined to the value.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Parts []EffectivePart `json:"parts,omitempty"`
}

// EffectivePart is a part of a value: one field is set, or none for the user who has requested the Namespace.
type EffectivePart struct {
	// text is a literal text.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Text string `json:"text,omitempty"`

	// label is the key of a label of the Namespace with the value of a parameter.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	Label string `json:"label,omitempty"`

	// annotation is the key of an annotation of the Namespace with the value of a parameter.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.startsWith('parameter.nslifecycle.dev/')",message="only annotations with the prefix parameter.nslifecycle.dev/ contain parameters"
	Annotation string `json:"annotation,omitempty"`

	// default is the value of the parameter if the annotation does not exist.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Default string `json:"default,omitempty"`
}

// EffectiveInitializer is one entry of the merged list.
type EffectiveInitializer struct {
	// name is the identifier of the initializer.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// configuration is the name of the first NamespaceInitializerConfiguration that registers the
	// initializer.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Configuration string `json:"configuration,omitempty"`

	v1alpha1.InitializerSettings `json:",inline"`
}

// Enforcement is what API servers do with early writes: writes to initializing namespaces that the gate does not admit.
//
// +kubebuilder:validation:Enum=Enforce;Audit
type Enforcement string

// The values of Enforcement.
const (
	// EnforcementEnforce: early writes are held, and then rejected.
	EnforcementEnforce Enforcement = "Enforce"
	// EnforcementAudit: early writes are admitted with a warning, and recorded.
	EnforcementAudit Enforcement = "Audit"
)

// NamespaceInitializerSetStatus describes whether API servers enforce the set.
type NamespaceInitializerSetStatus struct {
	// observedGeneration is the generation of the set that the conditions describe.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// enforcement is Audit if no binding of the gate denies early writes. Any other value means Enforce.
	// +optional
	Enforcement Enforcement `json:"enforcement,omitempty"`

	// conditions are the observed conditions. "Enforced" is True while every new Namespace gets the initializers of
	// the set, and early writes are denied.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NamespaceInitializerSet is the merged list of the initializers of all configurations. An
// admission policy reads it when a Namespace is created. There is one object, named "effective",
// which the operator writes. To register initializers, create a NamespaceInitializerConfiguration.
//
// It is a custom resource instead of a ConfigMap because the API server does not restart its
// informer for a built-in parameter kind after a policy is deleted and recreated.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Enforced",type=string,JSONPath=`.status.conditions[?(@.type=="Enforced")].status`
// +kubebuilder:printcolumn:name="Enforcement",type=string,JSONPath=`.status.enforcement`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'effective'",fieldPath=".metadata",message="there is one NamespaceInitializerSet, named \"effective\", and the operator writes it; to register initializers, create a NamespaceInitializerConfiguration"
type NamespaceInitializerSet struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// initializers is the merged list, in order. It can also contain the initializer of templates.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=257
	Initializers []EffectiveInitializer `json:"initializers,omitempty"`

	// waitingSubjects are the merged waitingSubjects of all configurations.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	WaitingSubjects []v1alpha1.Subject `json:"waitingSubjects,omitempty"`

	// templates are the NamespaceTemplates that can be added to namespaces, sorted by name.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=128
	Templates []EffectiveTemplate `json:"templates,omitempty"`

	// operators are the user names of all parts of the operator. The rules about subjects, waitingSubjects and templates
	// do not apply to them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=1024
	Operators []string `json:"operators,omitempty"`

	// systemNamespace is the namespace of the operator. This namespace never waits for initializers,
	// so that the operator can always be installed.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	SystemNamespace string `json:"systemNamespace,omitempty"`

	// sourceNamespace is the namespace of the sources of copies. It never waits for initializers, and templates are not
	// applied to it: users who can create namespaces must not get permissions in it.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	SourceNamespace string `json:"sourceNamespace,omitempty"`

	// status is the observed state.
	// +optional
	Status NamespaceInitializerSetStatus `json:"status,omitempty"`
}

// NamespaceInitializerSetList is a list of sets.
//
// +kubebuilder:object:root=true
type NamespaceInitializerSetList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NamespaceInitializerSet `json:"items"`
}
