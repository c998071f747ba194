// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

// Operation is an exchange of requests and responses with the API server, about one object or about the Namespace. It
// is a value: [Next] returns it with the next request.
type Operation struct {
	// Request is the next request. Its verb is empty when the operation has ended with the Result.
	Request Request
	Result  Result
	// After has the indexes of the operations without whose success this one is not executed.
	After []int

	// Template has the ServiceAccount that is impersonated.
	Template  *v1alpha1.NamespaceTemplate
	Namespace *corev1.Namespace
	// Choice has the revision of the template; an empty one if the template no longer applies.
	Choice Choice
	// Object is the object that is applied; only its key if it is deleted.
	Object ObjectSnapshot

	// step is the step of the exchange in which the request is sent.
	step step
	// own and action are why the object is applied, and restoration is whether another client prevents it. Before the
	// object is replaced or deleted, it must have the mark of the template owner.
	own         Ownership
	action      Action
	restoration restorationCheck
	owner       string
	// removed is the record of the object that is deleted; nil if an object is applied.
	removed *template.ObjectState
	// mustConfirmWait is true if the initialization fails when the object is not effective.
	mustConfirmWait bool
	// changes are the changes of the metadata of the Namespace in all operations of the plan.
	changes MetadataChanges

	// What the exchange has found: version is the only one that may be changed, if it is not empty; isForced is true if
	// other field managers are overridden, isFinal if the next application of the manifest is the last attempt, and
	// rejected is the error of the first.
	version           string
	isForced, isFinal bool
	rejected          error
	live              *unstructured.Unstructured
	found             *metav1.PartialObjectMetadata
	releases          []string
}

// Result is the result of an operation.
type Result struct {
	// Err is why the operation has not succeeded; nil if it has. The Namespace, or the object, has changed meanwhile if it
	// is ErrUnconfirmed.
	Err error
	// Writes are the actions that the API server has accepted.
	Writes []Action
	// Applied is the metadata of the object after it was applied; nil if it was not.
	Applied *metav1.PartialObjectMetadata
	// Created is the UID of the object that was created; empty if there is none.
	Created types.UID
	// IsCompared is true if the fields are known in which the object differs from the template.
	IsCompared bool
	Different  []string
	// Kept is why an object is not deleted; empty if it does not exist any more.
	Kept string
	// Namespace is the Namespace after the operation has changed its metadata; nil if it has not.
	Namespace *metav1.PartialObjectMetadata

	// restoration is what has prevented that the object was restored, with the description of the conflict.
	restoration restorationCheck
	// isConfirmed is true if the API server has confirmed that the object is not effective.
	isConfirmed bool
}

// ErrSkipped is the error of an operation that was not executed, because one on which it depends has not succeeded.
var ErrSkipped = errors.New("an earlier operation has not succeeded")

// Verb is the kind of a request.
type Verb string

// The verbs.
const (
	// Find gets the metadata of an object with the permissions of the operator. The response has none if the object does
	// not exist.
	Find Verb = "Find"
	// Apply applies a manifest as a field manager; as a dry run if IsDryRun is true.
	Apply Verb = "Apply"
	// Read gets an object with the permission to patch it.
	Read Verb = "Read"
	// SetManagers replaces the managedFields of an object, in any version if there is no ResourceVersion.
	SetManagers Verb = "SetManagers"
	// Delete deletes the object with the UID and the ResourceVersion.
	Delete Verb = "Delete"
	// Discover finds whether the API server serves a kind in any version.
	Discover Verb = "Discover"
	// Confirm gets the Namespace, the template and, if MustFindAccount is true, its ServiceAccount from the API server.
	Confirm Verb = "Confirm"
	// SetMetadata changes labels and annotations of the Namespace, in any version if there is no ResourceVersion.
	SetMetadata Verb = "SetMetadata"
	// CheckGranted finds whether the API server grants the permissions of a RoleBinding.
	CheckGranted Verb = "CheckGranted"
	// FindUncounted finds whether a ResourceQuota exists that is not counted.
	FindUncounted Verb = "FindUncounted"
)

// Request is a request for the object with a kind and a name in the Namespace of the operation, or for the Namespace.
type Request struct {
	Verb Verb
	// Kind has no version if an object is deleted.
	Kind schema.GroupVersionKind
	Name string
	// Manifest is complete, with the labels and annotations of the operator.
	Manifest           *unstructured.Unstructured
	FieldManager       string
	IsForced, IsDryRun bool
	Managers           []metav1.ManagedFieldsEntry
	UID                types.UID
	ResourceVersion    string
	Changes            MetadataChanges
	MustFindAccount    bool
	// IsRemoval is true if the ServiceAccount needs the verb "delete" for the type of the object.
	IsRemoval bool
}

// Response is the response to a request.
type Response struct {
	Err error
	// Metadata is the metadata of the object; nil if it does not exist.
	Metadata *metav1.PartialObjectMetadata
	// Object is the object in the response to Apply and Read.
	Object *unstructured.Unstructured
	// IsCreated is true if Apply has created the object.
	IsCreated bool
	// IsGone is true if the object does not exist any more after Delete.
	IsGone bool
	// IsServed is true if the API server serves the kind.
	IsServed bool
	// Namespace and Template are the states in the API server, and HasAccount is true if the ServiceAccount exists.
	Namespace  *corev1.Namespace
	Template   *v1alpha1.NamespaceTemplate
	HasAccount bool
	// IsUncounted is true if a ResourceQuota is not counted.
	IsUncounted bool
}

// IsDone reports whether the operation has ended.
func (o Operation) IsDone() bool { return o.Request.Verb == "" }

// IsReady reports whether all operations have succeeded on which this one depends.
func (o Operation) IsReady(results []Result) bool {
	return !slices.ContainsFunc(o.After, func(index int) bool { return results[index].Err != nil })
}
