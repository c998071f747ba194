// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TemplateAccess specifies who can choose a template.
//
// +kubebuilder:validation:Enum=Open;Restricted
type TemplateAccess string

// The kinds of access.
const (
	// AccessOpen allows all users to choose the template.
	AccessOpen TemplateAccess = "Open"
	// AccessRestricted requires the verb use on the template.
	AccessRestricted TemplateAccess = "Restricted"
)

// TemplateScope specifies to which of the selected Namespaces a template is applied.
//
// +kubebuilder:validation:Enum=NewNamespaces;AllNamespaces
type TemplateScope string

// The scopes.
const (
	// ScopeNewNamespaces applies the template to Namespaces that it selected when they were created.
	ScopeNewNamespaces TemplateScope = "NewNamespaces"
	// ScopeAllNamespaces also applies it to Namespaces that are older or got their labels later.
	ScopeAllNamespaces TemplateScope = "AllNamespaces"
)

// NamespaceTemplateSpec specifies objects and metadata, and the Namespaces that contain them.
//
// +kubebuilder:validation:XValidation:rule="has(self.objects) || has(self.metadata)",fieldPath=".objects",reason=FieldValueRequired,message="set objects, metadata, or both"
type NamespaceTemplateSpec struct {
	// namespaceSelector selects Namespaces by their labels. The empty selector selects every Namespace.
	// If it is not set, it selects none. Namespaces with the label "nslifecycle.dev/template" and the
	// name of the template are always selected.
	//
	// +optional
	NamespaceSelector *NamespaceSelector `json:"namespaceSelector,omitempty"`

	// access specifies who can create or label a Namespace so that the template selects it. "Open" allows
	// all users. "Restricted" requires the verb "use" on the template.
	//
	// +optional
	// +kubebuilder:default=Open
	Access TemplateAccess `json:"access,omitempty"`

	// serviceAccountName is the name of a ServiceAccount in the namespace of the operator. The operator
	// impersonates it to write the objects. It requires the verb "provision" on namespaces, granted by a
	// ClusterRoleBinding, and the permissions to create and patch the objects.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	ServiceAccountName string `json:"serviceAccountName"`

	// scope specifies to which selected Namespaces the template is applied. "NewNamespaces" excludes
	// Namespaces that were not created with it: those that are older than the template, and those that got
	// their labels later. "AllNamespaces" includes them once they are Initialized.
	//
	// +optional
	// +kubebuilder:default=NewNamespaces
	Scope TemplateScope `json:"scope,omitempty"`

	// maxNamespacesPerUser is the maximum number of Namespaces that a user creates with the template. The
	// operator counts the Namespaces of the same creator (annotation "nslifecycle.dev/requested-by") that
	// the template selected when they were created (annotation "nslifecycle.dev/selected-templates"), until
	// they no longer exist. Failed ones count only if they are protected from deletion. If the limit is
	// reached, the initialization of a new Namespace fails. The default is no limit.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	MaxNamespacesPerUser *int32 `json:"maxNamespacesPerUser,omitempty"`

	// parameters are values that the creator of a Namespace chooses, with the annotation
	// "parameter.nslifecycle.dev/<name>" or with the label that labelKey specifies.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:XValidation:rule="!has(self.default) || !has(self.pattern) || has(self.type) && self.type == 'List' || self.default.matches(self.pattern)",fieldPath=".default",message="the default must match the pattern"
	// +kubebuilder:validation:XValidation:rule="self.filter(p, has(p.type) && p.type == 'List').size() <= 8",message="at most 8 parameters can be lists"
	Parameters []TemplateParameter `json:"parameters,omitempty"`

	// variables are named expressions that objects and later variables can use.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Variables []TemplateVariable `json:"variables,omitempty"`

	// metadata specifies labels and annotations of each selected Namespace.
	//
	// +optional
	Metadata *TemplateMetadata `json:"metadata,omitempty"`

	// objectMetadata specifies labels and annotations of all objects of the template.
	//
	// +optional
	ObjectMetadata *TemplateObjectMetadata `json:"objectMetadata,omitempty"`

	// objects are the objects that each selected Namespace contains. At most 16 of them are copies.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:XValidation:rule="self.filter(o, has(o.sourceRef)).size() <= 16",message="a template can contain at most 16 copies: use several templates"
	Objects []TemplateObject `json:"objects,omitempty"`

	// sync specifies how the operator handles changes by other clients.
	//
	// +optional
	// +kubebuilder:default={}
	Sync TemplateSync `json:"sync,omitempty"`

	// objectRetentionPolicy specifies when the operator deletes the objects of the template. It never
	// deletes adopted objects.
	//
	// +optional
	// +kubebuilder:default={}
	ObjectRetentionPolicy TemplateObjectRetentionPolicy `json:"objectRetentionPolicy,omitempty"`

	// initialization specifies how long a new Namespace is Initializing because of the template.
	//
	// +optional
	// +kubebuilder:default={}
	Initialization TemplateInitialization `json:"initialization,omitempty"`

	// rollout specifies how changes of the template reach Namespaces that are Initialized. New Namespaces
	// get status.currentRevision.
	//
	// +optional
	// +kubebuilder:default={}
	Rollout TemplateRollout `json:"rollout,omitempty"`
}

// ParameterType is the type of a parameter.
//
// +kubebuilder:validation:Enum=String;List
type ParameterType string

// The types of parameters.
const (
	// ParameterString makes the value a string.
	ParameterString ParameterType = "String"
	// ParameterList makes the value a list of strings that are separated by commas.
	ParameterList ParameterType = "List"
)

// TemplateParameter is a value that the creator of a Namespace chooses. The API server validates it
// in the request that creates or changes the Namespace, and adds the default to new Namespaces.
//
// +kubebuilder:validation:XValidation:rule="!has(self.default) || has(self.type) && self.type == 'List' || !has(self.enum) || self.default in self.enum",fieldPath=".default",message="the default must be one of the values in enum"
// +kubebuilder:validation:XValidation:rule="!has(self.default) || !has(self.required) || !self.required",fieldPath=".required",reason=FieldValueForbidden,message="a parameter with a default cannot be required"
// +kubebuilder:validation:XValidation:rule="!has(self.labelKey) || !has(self.default)",fieldPath=".default",reason=FieldValueForbidden,message="a parameter that is the value of a label cannot have a default"
// +kubebuilder:validation:XValidation:rule="!has(self.labelKey) || !has(self.type) || self.type != 'List'",fieldPath=".type",reason=FieldValueForbidden,message="the value of a label cannot be a list"
// +kubebuilder:validation:XValidation:rule="!has(self.maxItems) || has(self.type) && self.type == 'List'",fieldPath=".maxItems",reason=FieldValueForbidden,message="maxItems applies only to lists: also set type to List, or remove maxItems"
type TemplateParameter struct {
	// name is the name of the parameter in expressions and, unless labelKey is set, in the annotation.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z][a-zA-Z0-9]*$`
	// +kubebuilder:validation:XValidation:rule="!(self in ['true', 'false', 'null', 'in'])",message="the name of a parameter cannot be a keyword of CEL"
	Name string `json:"name"`

	// description explains the parameter to users.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Description string `json:"description,omitempty"`

	// labelKey is the key of a label of the Namespace that contains the value, instead of the annotation.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$`
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('nslifecycle.dev/')",message="a parameter cannot use a label with the prefix nslifecycle.dev/: use another key"
	LabelKey string `json:"labelKey,omitempty"`

	// type is "String", the default, or "List": strings that are separated by commas, neither empty nor
	// repeated. The empty value is then the empty list, unless the parameter is required.
	// +optional
	Type ParameterType `json:"type,omitempty"`

	// maxItems is the maximum number of elements of a list. The default is 32.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=32
	MaxItems *int32 `json:"maxItems,omitempty"`

	// enum lists the permitted values, or elements of a list. If it is not set, all values of at most 1024
	// characters are permitted.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=253
	Enum []string `json:"enum,omitempty"`

	// pattern is a regular expression (RE2) that the value, or each element of a list, must match. It is not
	// anchored.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="''.matches(self) || !''.matches(self)",message="the pattern is not a valid regular expression"
	Pattern string `json:"pattern,omitempty"`

	// default is the value if the creator sets none.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Default *string `json:"default,omitempty"`

	// required rejects new Namespaces without the parameter.
	// +optional
	Required bool `json:"required,omitempty"`

	// immutable rejects changes to the value.
	// +optional
	Immutable bool `json:"immutable,omitempty"`
}

// The elements of lists have no defaults in the schema: client-side "kubectl apply" compares whole lists of custom
// resources, and would report a change each time.

// TemplateVariable is a named expression.
type TemplateVariable struct {
	// name is the name of the variable: expressions refer to it as variables.<name>.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z][a-zA-Z0-9]*$`
	// +kubebuilder:validation:XValidation:rule="!(self in ['true', 'false', 'null', 'in'])",message="the name of a variable cannot be a keyword of CEL"
	Name string `json:"name"`

	// expression is a CEL expression. It can use ns (name, labels, annotations), params, requestedBy, and
	// the variables before this one.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Expression string `json:"expression"`
}

// NamespaceState is the state of a Namespace in which the operator creates an object of a template.
//
// +kubebuilder:validation:Enum=Initializing;Initialized
type NamespaceState string

// The states.
const (
	// NamespaceStateInitializing creates the object before the Namespace is Initialized.
	NamespaceStateInitializing NamespaceState = "Initializing"
	// NamespaceStateInitialized creates the object after the Namespace is Initialized.
	NamespaceStateInitialized NamespaceState = "Initialized"
)

// ObjectLock specifies which changes the API server rejects.
//
// +kubebuilder:validation:Enum=None;All
type ObjectLock string

// The locks.
const (
	// LockNone permits all changes.
	LockNone ObjectLock = "None"
	// LockAll rejects updates and deletions.
	LockAll ObjectLock = "All"
)

// TemplateMetadataValue is the value of a label or an annotation. It can contain "${params.<name>}" and, in an
// annotation, "${requestedBy}". If one of them is empty, the key is absent. "$${" is replaced by "${".
//
// +kubebuilder:validation:MaxLength=1024
type TemplateMetadataValue string

// TemplateMetadata specifies labels and annotations of Namespaces. The API server sets them in the request that creates
// a Namespace, and replaces other values in it. The selectors of templates and initializers are evaluated before: they do
// not depend on these labels when a Namespace is created, but they do later. The operator sets them on other Namespaces,
// with the permissions of the ServiceAccount. Keys cannot have the prefixes "kubernetes.io/", "kubectl.kubernetes.io/"
// and "nslifecycle.dev/".
//
// +kubebuilder:validation:XValidation:rule="has(self.labels) || has(self.annotations)",fieldPath=".labels",reason=FieldValueRequired,message="set labels, annotations, or both"
type TemplateMetadata struct {
	// labels are the labels.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, (!k.contains('/') || k.split('/')[0].size() <= 253) && k.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$'))",message="the key of a label must be a qualified name"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.matches('^(kubernetes[.]io|kubectl[.]kubernetes[.]io|(.*[.])?nslifecycle[.]dev)/'))",message="a template cannot set keys with the prefix kubernetes.io/, kubectl.kubernetes.io/ or nslifecycle.dev/"
	// +kubebuilder:validation:XValidation:rule="self.all(k, self[k].matches('^(([A-Za-z0-9]|[$][{]params[.][a-z][a-zA-Z0-9]*[}])(([-A-Za-z0-9_.]|[$][{]params[.][a-z][a-zA-Z0-9]*[}])*([A-Za-z0-9]|[$][{]params[.][a-z][a-zA-Z0-9]*[}]))?)?$') && (self[k].contains('$') || self[k].size() <= 63))",message="the value of a label must have at most 63 letters, digits, '-', '_' and '.', and start and end with a letter or digit; it can contain ${params.<name>}"
	Labels map[string]TemplateMetadataValue `json:"labels,omitempty"`

	// annotations are the annotations.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, (!k.contains('/') || k.split('/')[0].size() <= 253) && k.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$'))",message="the key of an annotation must be a qualified name"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.matches('^(kubernetes[.]io|kubectl[.]kubernetes[.]io|(.*[.])?nslifecycle[.]dev)/'))",message="a template cannot set keys with the prefix kubernetes.io/, kubectl.kubernetes.io/ or nslifecycle.dev/"
	// +kubebuilder:validation:XValidation:rule="self.all(k, self[k].matches('^([^$]|[$][$][{]|[$]+[^${]|[$][{](params[.][a-z][a-zA-Z0-9]*|requestedBy)[}])*[$]*$'))",message="the value of an annotation can contain only the expressions ${params.<name>} and ${requestedBy}; write $${ for a literal ${"
	Annotations map[string]TemplateMetadataValue `json:"annotations,omitempty"`

	// lock specifies which changes of these labels and annotations the API server rejects, unless a
	// ClusterRoleBinding grants the user the verb "provision" or "initialize" on namespaces. "All" rejects every
	// change. Otherwise, the operator restores them as specified in sync.
	// +optional
	// +kubebuilder:default=None
	Lock ObjectLock `json:"lock,omitempty"`
}

// TemplateObjectMetadata specifies labels and annotations of objects.
//
// +kubebuilder:validation:XValidation:rule="has(self.labels) || has(self.annotations)",fieldPath=".labels",reason=FieldValueRequired,message="set labels, annotations, or both"
type TemplateObjectMetadata struct {
	// labels are added to each object that does not have them. The values, but not the keys, can contain CEL
	// expressions as in manifests.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=16
	Labels map[string]ObjectMetadataValue `json:"labels,omitempty"`

	// annotations are added to each object that does not have them. The values, but not the keys, can contain
	// CEL expressions as in manifests.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=16
	Annotations map[string]ObjectMetadataValue `json:"annotations,omitempty"`
}

// ObjectMetadataValue is the value of a label or annotation of objects.
//
// +kubebuilder:validation:MaxLength=4096
type ObjectMetadataValue string

// TemplateObject is an object that each selected Namespace contains: either a template or a copy.
//
// +kubebuilder:validation:XValidation:rule="has(self.template) || has(self.sourceRef)",fieldPath=".template",reason=FieldValueRequired,message="set either template or sourceRef"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || !has(self.sourceRef)",fieldPath=".sourceRef",reason=FieldValueForbidden,message="set either template or sourceRef"
// +kubebuilder:validation:XValidation:rule="!has(self.forEach) || !has(self.sourceRef)",fieldPath=".forEach",reason=FieldValueForbidden,message="a copy cannot have forEach"
type TemplateObject struct {
	// name identifies the object in this template.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// template is the manifest of the object without a namespace. Strings in it, but not its keys, can
	// contain CEL expressions in "${" and "}". An expression that is the whole string keeps its type.
	// "$${" is replaced by "${".
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	Template *runtime.RawExtension `json:"template,omitempty"`

	// sourceRef refers to a Secret or ConfigMap in the source namespace, which the flag --source-namespace of
	// the operator sets. The object is a copy of it, and is updated when the source changes. If the source
	// is deleted, the copies remain.
	// +optional
	SourceRef *TemplateSourceReference `json:"sourceRef,omitempty"`

	// forEach is the name of a parameter of type List. The Namespace contains the object once for each
	// element, which expressions in template and includeWhen read as "item". The name of the object must
	// depend on it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ForEach string `json:"forEach,omitempty"`

	// includeWhen is a CEL expression of type bool. If it is false, the Namespace does not contain the
	// object.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	IncludeWhen string `json:"includeWhen,omitempty"`

	// namespaceState is the state of the Namespace in which the operator creates the object:
	// "Initializing", the default, before users can write to the Namespace, or "Initialized".
	// +optional
	NamespaceState NamespaceState `json:"namespaceState,omitempty"`

	// lock specifies which changes to the object the API server rejects, unless a ClusterRoleBinding grants
	// the user the verb "provision" or "initialize" on namespaces. "All" rejects updates and deletions. The
	// default is "None".
	// +optional
	Lock ObjectLock `json:"lock,omitempty"`
}

// TemplateSourceReference refers to the source of a copy.
type TemplateSourceReference struct {
	// kind is "Secret" or "ConfigMap".
	// +required
	// +kubebuilder:validation:Enum=Secret;ConfigMap
	Kind string `json:"kind"`

	// name is the name of the source and of the copies.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name"`
}

// SyncMode specifies whether the operator keeps objects as the template specifies them.
//
// +kubebuilder:validation:Enum=Always;Once
type SyncMode string

// The modes.
const (
	// SyncAlways restores objects that other clients change or delete, and applies changes of the
	// template.
	SyncAlways SyncMode = "Always"
	// SyncOnce applies the objects once to each Namespace.
	SyncOnce SyncMode = "Once"
)

// ConflictPolicy specifies what happens if another client changes a field repeatedly.
//
// +kubebuilder:validation:Enum=Report;Force
type ConflictPolicy string

// The policies.
const (
	// ConflictReport restores an object three times, and then reports the conflict.
	ConflictReport ConflictPolicy = "Report"
	// ConflictForce always restores an object, with backoff.
	ConflictForce ConflictPolicy = "Force"
)

// AdoptionPolicy specifies what happens if an object of the template exists already.
//
// +kubebuilder:validation:Enum=IfEqual;Always;Never
type AdoptionPolicy string

// The policies.
const (
	// AdoptIfEqual adopts an object if the template does not change it.
	AdoptIfEqual AdoptionPolicy = "IfEqual"
	// AdoptAlways adopts every object and changes it.
	AdoptAlways AdoptionPolicy = "Always"
	// AdoptNever reports every object.
	AdoptNever AdoptionPolicy = "Never"
)

// TemplateSync specifies how the operator handles changes by other clients.
//
// +kubebuilder:validation:XValidation:rule="!has(self.mode) || self.mode != 'Once' || !has(self.conflictPolicy) || self.conflictPolicy != 'Force'",fieldPath=".conflictPolicy",reason=FieldValueForbidden,message="with mode Once, the operator restores no objects: remove conflictPolicy Force, or set mode to Always"
type TemplateSync struct {
	// mode specifies how often the operator applies the objects. "Always" also restores objects that other
	// clients change. "Once" applies the objects once to each Namespace.
	// +optional
	// +kubebuilder:default=Always
	Mode SyncMode `json:"mode,omitempty"`

	// conflictPolicy specifies what happens if another client changes an object again after the operator
	// has restored it. "Report" stops after three rounds and reports the conflict. "Force" continues with
	// increasing delays.
	// +optional
	// +kubebuilder:default=Report
	ConflictPolicy ConflictPolicy `json:"conflictPolicy,omitempty"`

	// adoptionPolicy specifies what happens if an object exists before the template is applied. "IfEqual"
	// adopts it if it contains all values of the template, and otherwise reports it. "Always" changes it.
	// "Never" reports it.
	// +optional
	// +kubebuilder:default=IfEqual
	AdoptionPolicy AdoptionPolicy `json:"adoptionPolicy,omitempty"`
}

// RetentionPolicy specifies whether objects are deleted, as for the PersistentVolumeClaims of a StatefulSet.
//
// +kubebuilder:validation:Enum=Delete;Retain
type RetentionPolicy string

// The policies.
const (
	// RetentionDelete deletes the objects.
	RetentionDelete RetentionPolicy = "Delete"
	// RetentionRetain keeps the objects.
	RetentionRetain RetentionPolicy = "Retain"
)

// TemplateObjectRetentionPolicy specifies when the operator deletes the objects of a template.
type TemplateObjectRetentionPolicy struct {
	// whenRemoved applies to objects that the template no longer contains.
	// +optional
	// +kubebuilder:default=Delete
	WhenRemoved RetentionPolicy `json:"whenRemoved,omitempty"`

	// whenDeselected applies to the objects in a Namespace that the template no longer selects.
	// +optional
	// +kubebuilder:default=Retain
	WhenDeselected RetentionPolicy `json:"whenDeselected,omitempty"`

	// whenDeleted applies to all objects when the template is deleted.
	// +optional
	// +kubebuilder:default=Retain
	WhenDeleted RetentionPolicy `json:"whenDeleted,omitempty"`
}

// TemplateWaitPolicy specifies until when a new Namespace is Initializing.
//
// +kubebuilder:validation:Enum=Effective;Applied
type TemplateWaitPolicy string

// The wait policies.
const (
	// WaitForEffective waits until the objects are effective.
	WaitForEffective TemplateWaitPolicy = "Effective"
	// WaitForApplied waits only until the objects exist.
	WaitForApplied TemplateWaitPolicy = "Applied"
)

// FailureTimeoutPolicy specifies what happens to an initializing Namespace after failureTimeoutSeconds.
//
// +kubebuilder:validation:Enum=Fail;Retry
type FailureTimeoutPolicy string

// The policies.
const (
	// FailureTimeoutFail fails the initialization: the Namespace gets a failure result and is deleted.
	FailureTimeoutFail FailureTimeoutPolicy = "Fail"
	// FailureTimeoutRetry retries and reports the failure until it ends.
	FailureTimeoutRetry FailureTimeoutPolicy = "Retry"
)

// TemplateInitialization specifies how long a new Namespace is Initializing because of a template: how long it waits
// for applied objects to become effective, and how long for objects that cannot be applied. It never becomes
// Initialized without an object that cannot be applied.
//
// +kubebuilder:validation:XValidation:rule="!has(self.waitPolicy) || self.waitPolicy != 'Applied' || !has(self.effectiveTimeoutSeconds)",fieldPath=".effectiveTimeoutSeconds",reason=FieldValueForbidden,message="waitPolicy Applied does not wait for objects to become effective: remove effectiveTimeoutSeconds, or set waitPolicy to Effective"
// +kubebuilder:validation:XValidation:rule="!has(self.waitPolicy) || self.waitPolicy != 'Applied' || !has(self.effectiveTimeoutPolicy) || self.effectiveTimeoutPolicy != 'Ignore'",fieldPath=".effectiveTimeoutPolicy",reason=FieldValueForbidden,message="waitPolicy Applied does not wait for objects to become effective: remove effectiveTimeoutPolicy, or set waitPolicy to Effective"
// +kubebuilder:validation:XValidation:rule="!has(self.effectiveTimeoutPolicy) || self.effectiveTimeoutPolicy != 'Ignore' || has(self.effectiveTimeoutSeconds) || has(self.waitPolicy) && self.waitPolicy == 'Applied'",fieldPath=".effectiveTimeoutSeconds",reason=FieldValueRequired,message="effectiveTimeoutPolicy Ignore applies only after a timeout: also set effectiveTimeoutSeconds, or remove effectiveTimeoutPolicy"
type TemplateInitialization struct {
	// waitPolicy specifies until when the Namespace is Initializing. "Effective" waits until
	// kube-controller-manager has counted each ResourceQuota, since a quota limits nothing before, and
	// until the API server grants the permissions of each RoleBinding. "Applied" waits only until the
	// objects exist.
	// +optional
	// +kubebuilder:default=Effective
	WaitPolicy TemplateWaitPolicy `json:"waitPolicy,omitempty"`

	// effectiveTimeoutSeconds is how many seconds the Namespace waits for objects to become effective, counted
	// from the start of the turn of the initializer of templates. If it is not set, there is no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2592000
	EffectiveTimeoutSeconds *int32 `json:"effectiveTimeoutSeconds,omitempty"`

	// effectiveTimeoutPolicy specifies what happens after effectiveTimeoutSeconds. "Fail" fails the
	// initialization: the Namespace gets a failure result and is deleted. "Ignore" waits no longer for these
	// objects, and the operator records an Event.
	// +optional
	// +kubebuilder:default=Fail
	EffectiveTimeoutPolicy FailurePolicy `json:"effectiveTimeoutPolicy,omitempty"`

	// failureTimeoutSeconds is how many seconds the same failure that waiting cannot end, such as a missing permission or
	// an invalid object, may last until failureTimeoutPolicy applies. The time starts when the operator observes the
	// failure, and again when it restarts.
	// +optional
	// +kubebuilder:default=1800
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2592000
	FailureTimeoutSeconds int32 `json:"failureTimeoutSeconds,omitempty"`

	// failureTimeoutPolicy specifies what happens after failureTimeoutSeconds. "Fail" fails the initialization: the
	// Namespace gets a failure result and is deleted. "Retry" retries and reports the failure until it ends.
	// +optional
	// +kubebuilder:default=Fail
	FailureTimeoutPolicy FailureTimeoutPolicy `json:"failureTimeoutPolicy,omitempty"`
}

// TemplateRollout specifies how changes of the template reach Namespaces that are Initialized.
//
// +kubebuilder:validation:XValidation:rule="!has(self.minReadySeconds) || self.minReadySeconds == 0 || has(self.canarySelector)",message="minReadySeconds is how long the canaries contain a revision before other namespaces get it: set canarySelector, or remove minReadySeconds",fieldPath=".canarySelector",reason=FieldValueRequired
type TemplateRollout struct {
	// maxNamespacesPerSecond is the maximum number of Namespaces that are updated in one second.
	// +optional
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MaxNamespacesPerSecond int32 `json:"maxNamespacesPerSecond,omitempty"`

	// canarySelector selects the Namespaces that are updated first. Other Namespaces are updated when these
	// contain the new revision. If it is not set, it selects none.
	// +optional
	CanarySelector *NamespaceSelector `json:"canarySelector,omitempty"`

	// minReadySeconds is how many seconds all canaries must contain the new revision before other Namespaces
	// are updated. The time counts from status.canariesUpdatedTime, also while the rollout is paused, and if
	// canarySelector selects no Namespace. It starts again if the revision changes or fails in a canary, but
	// not for a canary that is added later.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2592000
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`

	// failureThreshold pauses the rollout while the new revision cannot be applied to this number of
	// Namespaces.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	FailureThreshold int32 `json:"failureThreshold,omitempty"`

	// paused pauses the rollout.
	// +optional
	// +kubebuilder:default=false
	Paused bool `json:"paused,omitempty"`
}

// NamespaceTemplateStatus is the observed state of a template.
type NamespaceTemplateStatus struct {
	// observedGeneration is the metadata.generation that the status is computed from. It is -1 until the
	// operator has observed the template.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are the observed conditions: "Ready", which summarizes the others, "Valid",
	// "Authorized", "Progressing" and "Conflicted". "Stalled" exists, and is True, only while the
	// template cannot become ready unless a user acts.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// updateRevision identifies the content of the spec: parameters, variables, metadata and objects. Namespaces
	// record the revision that they contain in the annotation "nslifecycle.dev/applied-templates". The
	// ControllerRevision "<template>-<revision>" in the namespace of the operator has the content.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	UpdateRevision string `json:"updateRevision,omitempty"`

	// currentRevision is the revision that new Namespaces get: the last one that has reached all Namespaces
	// that are Initialized, except those whose own objects or metadata prevent it. The first revision is
	// current at once. It equals updateRevision unless a rollout is in progress or the template is invalid. The
	// annotation "nslifecycle.dev/current-revision" of the ControllerRevisions records it.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	CurrentRevision string `json:"currentRevision,omitempty"`

	// canariesUpdatedTime is when all Namespaces that rollout.canarySelector selects contained updateRevision,
	// rounded up to seconds, during a rollout with minReadySeconds. If it is lost, a restarted operator counts again.
	// +optional
	CanariesUpdatedTime *metav1.Time `json:"canariesUpdatedTime,omitempty"`

	// namespaces are the numbers of Namespaces by state.
	// +optional
	Namespaces *TemplateNamespaceCounts `json:"namespaces,omitempty"`

	// failures are the first failures, sorted by Namespace.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Failures []TemplateFailure `json:"failures,omitempty"`
}

// TemplateNamespaceCounts are numbers of Namespaces. One that is Initializing is counted only if it is failed
// or conflicted.
type TemplateNamespaceCounts struct {
	// desired is the number of Namespaces to which the template is applied: the sum of the other numbers.
	// +required
	// +kubebuilder:validation:Minimum=0
	Desired int32 `json:"desired"`
	// updated is the number of Namespaces that contain the objects of updateRevision or, if sync.mode is "Once",
	// of any revision.
	// +required
	// +kubebuilder:validation:Minimum=0
	Updated int32 `json:"updated"`
	// outdated is the number of Namespaces that the operator must still update.
	// +required
	// +kubebuilder:validation:Minimum=0
	Outdated int32 `json:"outdated"`
	// failed is the number of Namespaces in which an object cannot be applied.
	// +required
	// +kubebuilder:validation:Minimum=0
	Failed int32 `json:"failed"`
	// conflicted is the number of Namespaces in which another client or template controls an object.
	// +required
	// +kubebuilder:validation:Minimum=0
	Conflicted int32 `json:"conflicted"`
}

// TemplateFailure describes why the operator cannot apply a template to a Namespace.
type TemplateFailure struct {
	// namespace is the name of the Namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// object is the name of the object in the template; empty if the failure concerns the whole template, or
	// an object that the template no longer contains.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Object string `json:"object,omitempty"`
	// reason is one word in CamelCase.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`
	// message describes the failure.
	// +required
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message"`
}

// NamespaceTemplate specifies the objects, labels and annotations that each selected Namespace contains. The operator
// creates them before a new Namespace is Initialized, and keeps them up to date.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=nstemplate,categories=nslifecycle
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Progressing",type=string,JSONPath=`.status.conditions[?(@.type=="Progressing")].status`
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.status.updateRevision`
// +kubebuilder:printcolumn:name="Updated",type=integer,JSONPath=`.status.namespaces.updated`
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.status.namespaces.desired`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.namespaces.failed`
// +kubebuilder:printcolumn:name="Conflicted",type=integer,JSONPath=`.status.namespaces.conflicted`
// +kubebuilder:printcolumn:name="Current-Revision",type=string,priority=1,JSONPath=`.status.currentRevision`
// +kubebuilder:printcolumn:name="Access",type=string,priority=1,JSONPath=`.spec.access`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",fieldPath=".metadata",message="the name of a template must be a DNS label of at most 63 characters, because it is also the value of a label"
type NamespaceTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec specifies the objects and the Namespaces.
	// +required
	Spec NamespaceTemplateSpec `json:"spec"`

	// status is the observed state of the template.
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status NamespaceTemplateStatus `json:"status,omitempty"`
}

// NamespaceTemplateList is a list of templates.
//
// +kubebuilder:object:root=true
type NamespaceTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NamespaceTemplate `json:"items"`
}
