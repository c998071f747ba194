// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// objectKey identifies an object in a Namespace. The version does not matter.
type objectKey struct {
	kind schema.GroupKind
	name string
}

func keyOf(manifest *unstructured.Unstructured) objectKey {
	return objectKey{kind: manifest.GroupVersionKind().GroupKind(), name: manifest.GetName()}
}

// desired is an object that a Namespace should contain.
type desired struct {
	// name is the name of the object in the template.
	name     string
	manifest *unstructured.Unstructured
	// content is the hash of the manifest. For a copy, it is that of sourceContent.id.
	content  string
	when     v1alpha1.TemplateObjectTime
	isLocked bool
	// err is why the content is unknown. The manifest then contains only the name and the kind.
	err error
}

// observed is the metadata of an object in the cluster.
type observed struct {
	uid             types.UID
	resourceVersion string
	// template and namespaceUID are the label and the annotation that the operator has written.
	template     string
	namespaceUID types.UID
	// fields is the hash of the managedFields entry of the template; empty if there is none.
	fields        string
	isTerminating bool
	// isCounted is true if the object is a ResourceQuota that kube-controller-manager has counted.
	isCounted bool
	// isCrowded is true if the object has too many field managers.
	isCrowded bool
}

// Action is what the operator does with an object. The values are also values of a metric label.
type Action string

// The actions that write an object.
const (
	// ActionCreate applies an object that is not recorded, without overriding other clients.
	ActionCreate Action = "create"
	// ActionUpdate applies a changed manifest.
	ActionUpdate Action = "update"
	// ActionRestore applies an object that another client has changed or deleted.
	ActionRestore Action = "restore"
	// ActionDelete deletes an object that the template no longer contains.
	ActionDelete Action = "delete"
)

// The other actions.
const (
	// actionNone: the object is as recorded.
	actionNone Action = ""
	// actionWait waits for the deletion of an object that the Namespace does not record.
	actionWait Action = "wait"
)

// Actions returns the actions that write an object.
func Actions() []Action { return []Action{ActionCreate, ActionUpdate, ActionRestore, ActionDelete} }

// Recorder records the writes of an Applier.
type Recorder interface {
	// Wrote counts a request that the API server has accepted.
	Wrote(template string, action Action)
}

// obsolete returns the recorded objects that neither the template nor another one contains any more.
func obsolete(state Entry, want []desired, claimed func(objectKey) bool) []ObjectState {
	keys := map[objectKey]bool{}
	for _, object := range want {
		keys[keyOf(object.manifest)] = true
	}
	var found []ObjectState
	for _, object := range state.Objects {
		if !keys[object.key()] && !claimed(object.key()) {
			found = append(found, object)
		}
	}
	return found
}

// hasApplied reports whether the content of each object that a template contains, and that no other template applies
// instead, was applied. Another client can have changed an object since.
func hasApplied(want []desired, applied []ObjectState, isElsewhere func(objectKey) bool) bool {
	entry := Entry{Objects: applied}
	return !slices.ContainsFunc(want, func(object desired) bool {
		key := keyOf(object.manifest)
		state := entry.find(key)
		return !isElsewhere(key) && (state == nil || state.Content != object.content)
	})
}
