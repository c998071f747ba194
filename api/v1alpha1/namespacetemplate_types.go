// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// TemplateAccess specifies who can choose a template.
//
// +kubebuilder:validation:Enum=Open;Restricted
type TemplateAccess string

// The kinds of access.
const (
	// AccessOpen allows all users to choose the template.
	AccessOpen TemplateAccess = "Open"
	// AccessRestricted requires VerbUse on the template.
	AccessRestricted TemplateAccess = "Restricted"
)

// NamespaceTemplateSpec specifies objects, and the Namespaces that contain them.
type NamespaceTemplateSpec struct {
	// namespaceSelector selects Namespaces by their labels. An empty selector selects every Namespace.
	// If it is not set, only Namespaces with the label "nslifecycle.dev/template" and the name of the
	// template are selected. Such Namespaces are selected in any case.
	//
	// +optional
	NamespaceSelector *NamespaceSelector `json:"namespaceSelector,omitempty"`

	// access specifies who can create or label a Namespace so that the template selects it. "Open", the
	// default, allows all users. "Restricted" requires the verb "use" on the template.
	//
	// +optional
	// +kubebuilder:default=Open
	Access TemplateAccess `json:"access,omitempty"`

	// serviceAccountName is the name of a ServiceAccount in the namespace of the operator. The operator
	// impersonates it to write the objects and to read the sources of copies. It requires the verb
	// "furnish" on namespaces, granted by a ClusterRoleBinding, and the permissions to create and patch
	// the objects.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	ServiceAccountName string `json:"serviceAccountName"`

	// existingNamespaces extends the template to Namespaces that were not created with it: those that
	// are older than the template, and those that got their labels later. They get the objects when they
	// are initialized. The default is false.
	//
	// +optional
	ExistingNamespaces bool `json:"existingNamespaces,omitempty"`

	// maxNamespacesPerUser is the maximum number of Namespaces that a user creates with the template. The
	// operator counts the Namespaces of the same creator (annotation "nslifecycle.dev/requested-by") that
	// the template selected when they were created (annotation "nslifecycle.dev/selected-templates"), until
	// they no longer exist. Failed ones count only if they are protected from deletion. If the limit is
	// reached, the initialization of a new Namespace fails. The default is no limit.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxNamespacesPerUser *int32 `json:"maxNamespacesPerUser,omitempty"`

	// parameters are values that the creator of a Namespace chooses, with the annotation
	// "parameter.nslifecycle.dev/<name>".
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Parameters []TemplateParameter `json:"parameters,omitempty"`

	// variables are named expressions that objects and later variables can use.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Variables []TemplateVariable `json:"variables,omitempty"`

	// objects are the objects that each selected Namespace contains. At most 16 of them are copies.
	//
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:XValidation:rule="self.filter(o, has(o.copy)).size() <= 16",message="a template can contain at most 16 copies: use several templates"
	Objects []TemplateObject `json:"objects"`

	// sync specifies how the operator handles changes by other clients.
	//
	// +optional
	// +kubebuilder:default={}
	Sync TemplateSync `json:"sync,omitempty"`

	// removal specifies when the operator deletes the objects of the template.
	//
	// +optional
	// +kubebuilder:default={}
	Removal TemplateRemoval `json:"removal,omitempty"`

	// readiness specifies when a new Namespace opens.
	//
	// +optional
	// +kubebuilder:default={}
	Readiness TemplateReadiness `json:"readiness,omitempty"`

	// rollout specifies how changes of the template reach open Namespaces. New Namespaces get the last
	// revision that has reached all open Namespaces.
	//
	// +optional
	// +kubebuilder:default={}
	Rollout TemplateRollout `json:"rollout,omitempty"`
}

// TemplateParameter is a value that the creator of a Namespace chooses. The API server validates it
// in the request that creates or changes the Namespace, and adds the default to new Namespaces.
//
// +kubebuilder:validation:XValidation:rule="!has(self.enum) || !has(self.default) || self.default in self.enum",message="the default must be one of the values in enum"
// +kubebuilder:validation:XValidation:rule="!has(self.default) || !has(self.required) || !self.required",message="a parameter with a default cannot be required"
// +kubebuilder:validation:XValidation:rule="!has(self.label) || !has(self.default)",message="a parameter that is the value of a label cannot have a default"
type TemplateParameter struct {
	// name is the name of the parameter in expressions and in the annotation.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z][a-zA-Z0-9]*$`
	// +kubebuilder:validation:XValidation:rule="!(self in ['true', 'false', 'null', 'in'])",message="the name of a parameter cannot be a keyword of CEL"
	Name string `json:"name"`

	// description explains the parameter to users.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Description string `json:"description,omitempty"`

	// label is the key of a label of the Namespace that contains the value, instead of the annotation.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$`
	Label string `json:"label,omitempty"`

	// enum lists the permitted values. The default permits all values of at most 1024 characters.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=253
	Enum []string `json:"enum,omitempty"`

	// pattern is a regular expression (RE2) that the value must match. It is not anchored.
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

// TemplateObjectTime specifies when an object is created.
//
// +kubebuilder:validation:Enum=BeforeOpen;AfterOpen
type TemplateObjectTime string

// The times.
const (
	// TemplateBeforeOpen creates the object while the Namespace is initializing.
	TemplateBeforeOpen TemplateObjectTime = "BeforeOpen"
	// TemplateAfterOpen creates the object when the initialization has completed.
	TemplateAfterOpen TemplateObjectTime = "AfterOpen"
)

// TemplateObject is an object that each selected Namespace contains: either a template or a copy.
//
// +kubebuilder:validation:XValidation:rule="has(self.template) != has(self.copy)",message="set either template or copy"
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

	// copy creates a copy of a Secret or ConfigMap, and updates it when the source changes. If the source
	// is deleted, the copies remain.
	// +optional
	Copy *TemplateCopy `json:"copy,omitempty"`

	// includeWhen is a CEL expression of type bool. If it is false, the Namespace does not contain the
	// object.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	IncludeWhen string `json:"includeWhen,omitempty"`

	// when specifies when the object is created. "BeforeOpen" is the default.
	// +optional
	// +kubebuilder:default=BeforeOpen
	When TemplateObjectTime `json:"when,omitempty"`

	// locked makes the API server reject changes to the object by users who have neither the verb
	// "furnish" nor the verb "initialize" on the Namespace.
	// +optional
	Locked bool `json:"locked,omitempty"`
}

// TemplateCopy is the source of a copy.
type TemplateCopy struct {
	// apiVersion is "v1".
	// +required
	// +kubebuilder:validation:Enum=v1
	APIVersion string `json:"apiVersion"`

	// kind is "Secret" or "ConfigMap".
	// +required
	// +kubebuilder:validation:Enum=Secret;ConfigMap
	Kind string `json:"kind"`

	// namespace is the namespace of the source.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`

	// name is the name of the source and of the copies.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
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

// AdoptPolicy specifies what happens if an object of the template exists already.
//
// +kubebuilder:validation:Enum=IfEqual;Always;Never
type AdoptPolicy string

// The policies.
const (
	// AdoptIfEqual adopts an object if the template does not change it.
	AdoptIfEqual AdoptPolicy = "IfEqual"
	// AdoptAlways adopts every object and changes it.
	AdoptAlways AdoptPolicy = "Always"
	// AdoptNever reports every object.
	AdoptNever AdoptPolicy = "Never"
)

// TemplateSync specifies how the operator handles changes by other clients.
type TemplateSync struct {
	// mode is "Always", the default, or "Once": the operator then applies the objects only once to each
	// Namespace.
	// +optional
	// +kubebuilder:default=Always
	Mode SyncMode `json:"mode,omitempty"`

	// conflicts specifies what happens if another client changes an object again after the operator has
	// restored it. "Report", the default, stops after three rounds and reports the conflict. "Force"
	// continues with increasing delays.
	// +optional
	// +kubebuilder:default=Report
	Conflicts ConflictPolicy `json:"conflicts,omitempty"`

	// adopt specifies what happens if an object exists before the template is applied. "IfEqual", the
	// default, adopts it if it contains all values of the template, and otherwise reports it. "Always"
	// changes it. "Never" reports it.
	// +optional
	// +kubebuilder:default=IfEqual
	Adopt AdoptPolicy `json:"adopt,omitempty"`
}

// RemovalPolicy specifies whether objects are deleted.
//
// +kubebuilder:validation:Enum=Prune;Keep
type RemovalPolicy string

// The policies.
const (
	// RemovalPrune deletes the objects.
	RemovalPrune RemovalPolicy = "Prune"
	// RemovalKeep keeps the objects.
	RemovalKeep RemovalPolicy = "Keep"
)

// TemplateRemoval specifies when the operator deletes the objects of a template. It never deletes adopted objects.
type TemplateRemoval struct {
	// fromTemplate applies to objects that the template no longer contains. The default is "Prune".
	// +optional
	// +kubebuilder:default=Prune
	FromTemplate RemovalPolicy `json:"fromTemplate,omitempty"`

	// onUnmatch applies to the objects in a Namespace that the template no longer selects. The default
	// is "Keep".
	// +optional
	// +kubebuilder:default=Keep
	OnUnmatch RemovalPolicy `json:"onUnmatch,omitempty"`

	// onDelete applies to all objects when the template is deleted. The default is "Keep".
	// +optional
	// +kubebuilder:default=Keep
	OnDelete RemovalPolicy `json:"onDelete,omitempty"`
}

// ReadinessMode specifies when a new Namespace opens.
//
// +kubebuilder:validation:Enum=Effective;Applied
type ReadinessMode string

// The modes.
const (
	// ReadinessEffective waits until the objects are effective.
	ReadinessEffective ReadinessMode = "Effective"
	// ReadinessApplied waits only until the objects exist.
	ReadinessApplied ReadinessMode = "Applied"
)

// TemplateReadiness specifies when a new Namespace opens.
type TemplateReadiness struct {
	// mode is "Effective", the default, or "Applied". "Effective" waits until kube-controller-manager has
	// counted each ResourceQuota, since a quota limits nothing before, and until the API server grants the
	// permissions of each RoleBinding. "Applied" waits only until the objects exist.
	// +optional
	// +kubebuilder:default=Effective
	Mode ReadinessMode `json:"mode,omitempty"`

	// timeoutSeconds is the maximum time in seconds that a Namespace waits for objects that exist to
	// become effective. After this time, the Namespace opens, and the operator records an Event. The
	// default is no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`
}

// TemplateRollout specifies how changes of the template reach open Namespaces.
type TemplateRollout struct {
	// ratePerSecond is the maximum number of Namespaces that are updated in one second. The default is
	// 100.
	// +optional
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	RatePerSecond int32 `json:"ratePerSecond,omitempty"`

	// canary selects the Namespaces that are updated first. Other Namespaces are updated when these contain the
	// new revision.
	// +optional
	Canary *NamespaceSelector `json:"canary,omitempty"`

	// pauseAfterFailures pauses the rollout while the new revision cannot be applied to this number of
	// Namespaces. The default is 3.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	PauseAfterFailures int32 `json:"pauseAfterFailures,omitempty"`

	// paused pauses the rollout.
	// +optional
	Paused bool `json:"paused,omitempty"`
}

// NamespaceTemplateStatus is the observed state of a template.
type NamespaceTemplateStatus struct {
	// conditions are the observed conditions: "Valid", "Authorized", "Progressing" and "Conflicted".
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// revision identifies the content of the spec: parameters, variables and objects. Namespaces record
	// the revision that they contain in the annotation "nslifecycle.dev/templates". The ControllerRevision
	// "<template>-<revision>" in the namespace of the operator has the content.
	// +optional
	Revision string `json:"revision,omitempty"`

	// currentRevision is the last revision that has reached all open Namespaces. New Namespaces get it.
	// +optional
	CurrentRevision string `json:"currentRevision,omitempty"`

	// sourceNamespaces are the namespaces of the sources of copies. If one of them is deleted and created
	// again, which other users may have done, the operator copies nothing from the new one until its
	// entry is removed.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	SourceNamespaces []TemplateSourceNamespace `json:"sourceNamespaces,omitempty"`

	// namespaces are the numbers of Namespaces by state.
	// +optional
	Namespaces *TemplateNamespaceCounts `json:"namespaces,omitempty"`

	// failures are the first failures, sorted by Namespace.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Failures []TemplateFailure `json:"failures,omitempty"`
}

// TemplateSourceNamespace identifies the namespace of the source of a copy.
type TemplateSourceNamespace struct {
	// name is the name of the Namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// uid is the UID of the Namespace when the operator first read it for this template.
	// +required
	UID types.UID `json:"uid"`
}

// TemplateNamespaceCounts are numbers of Namespaces.
type TemplateNamespaceCounts struct {
	// selected is the number of Namespaces that the template selects.
	Selected int32 `json:"selected"`
	// ready is the number of Namespaces that contain the objects of the revision of the spec.
	Ready int32 `json:"ready"`
	// pending is the number of Namespaces that the operator must still update.
	Pending int32 `json:"pending"`
	// failed is the number of Namespaces in which an object cannot be applied.
	Failed int32 `json:"failed"`
	// conflicted is the number of Namespaces in which another client controls an object.
	Conflicted int32 `json:"conflicted"`
}

// TemplateFailure describes why the operator cannot apply a template to a Namespace.
type TemplateFailure struct {
	// namespace is the name of the Namespace.
	Namespace string `json:"namespace"`
	// object is the name of the object in the template; empty if the failure concerns the whole template.
	// +optional
	Object string `json:"object,omitempty"`
	// reason is one word in CamelCase.
	Reason string `json:"reason"`
	// message describes the failure.
	Message string `json:"message"`
}

// NamespaceTemplate specifies the objects that each selected Namespace contains. The operator creates
// them before a new Namespace opens, and keeps them up to date.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=nstemplate,categories=nslifecycle
// +kubebuilder:printcolumn:name="Valid",type=string,JSONPath=`.status.conditions[?(@.type=="Valid")].status`
// +kubebuilder:printcolumn:name="Authorized",type=string,JSONPath=`.status.conditions[?(@.type=="Authorized")].status`
// +kubebuilder:printcolumn:name="Selected",type=integer,JSONPath=`.status.namespaces.selected`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.namespaces.ready`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.namespaces.failed`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="the name of a template must be a DNS label of at most 63 characters, because it is also the value of a label"
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
