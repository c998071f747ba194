// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/render"
)

// Object is an object that a template contains, and what is done with it.
type Object struct {
	// Name is the name of the object in the template.
	Name string
	// Manifest contains only the kind and the metadata of a copy whose source was not read.
	Manifest *unstructured.Unstructured
	// IsCopy is true if the object is a copy of the source of the same kind and name.
	IsCopy bool
	// Content is the hash of the manifest. For a copy, it identifies the content of the source.
	Content  string
	IsLocked bool
	// Value is that of a label or annotation of the Namespace.
	Value string
	// Own is what is known about the object in the cluster, from which Action follows. A full pass can find more.
	Own    Ownership
	Action Action
	// Err is why the object was not applied, or is not effective although it was.
	Err error
	// Recorded is what the Namespace records of the object; nil if nothing. Its content can be that of an earlier
	// revision.
	Recorded *template.ObjectState
}

func newObject(rendered render.Object) *Object {
	object := &Object{
		Name: rendered.Name, Manifest: rendered.Manifest, IsCopy: rendered.IsCopy, IsLocked: rendered.Locked,
	}
	if !rendered.IsCopy {
		object.Content = template.ObjectContent(rendered.Manifest, rendered.Locked)
	}
	return object
}

// NewMetadata returns a label or annotation of the Namespace.
func NewMetadata(kind schema.GroupKind, key, value string) *Object {
	manifest := &unstructured.Unstructured{Object: map[string]any{}}
	manifest.SetKind(kind.Kind)
	manifest.SetName(key)
	return &Object{Manifest: manifest, Value: value, Content: template.HashOf(value)}
}

// IsMetadata reports whether the object is a label or annotation of the Namespace.
func (o *Object) IsMetadata() bool { return template.IsMetadata(o.Key().Kind) }

// Key identifies the object in its Namespace.
func (o *Object) Key() template.ObjectKey { return template.KeyOf(o.Manifest) }

// Observed is the metadata of an object in the cluster.
type Observed struct {
	UID             types.UID
	ResourceVersion string
	// Template and NamespaceUID are the label and the annotation that the operator has written.
	Template     string
	NamespaceUID types.UID
	// Fields is the hash of the managedFields entry of the template, empty if there is none; of the value of a label or
	// annotation.
	Fields        string
	IsTerminating bool
	// IsCounted is true if the object is a ResourceQuota that kube-controller-manager has counted.
	IsCounted bool
	// IsCrowded is true if the object has too many field managers.
	IsCrowded bool
	// IsShared is true if another client also claims fields that a template has set.
	IsShared bool
}

// Action is what the operator does with an object. The values are also values of a metric label.
type Action string

// The actions that write an object.
const (
	// ActionCreate applies an object that is not recorded, without overriding other clients.
	ActionCreate Action = "Create"
	// ActionUpdate applies a changed manifest.
	ActionUpdate Action = "Update"
	// ActionRestore applies an object that another client has changed or deleted.
	ActionRestore Action = "Restore"
	// ActionDelete deletes an object that the template no longer contains.
	ActionDelete Action = "Delete"
)

// The other actions.
const (
	// NoAction means that the object is as recorded.
	NoAction Action = ""
	// WaitForDeletion means waiting for the deletion of an object that the Namespace does not record.
	WaitForDeletion Action = "Wait"
)

// Actions returns the actions that write an object.
func Actions() []Action { return []Action{ActionCreate, ActionUpdate, ActionRestore, ActionDelete} }
