// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/internal/template/permissions"
)

// ownership is what is known about who has created an object. Whether the operator adopts, changes, replaces or deletes
// an object depends on nothing else.
type ownership struct {
	namespace      types.UID
	isInitializing bool
	// recorded is what the Namespace records for the template.
	recorded *ObjectState
	// earlier is what it records for another template, from which the object moves to this one.
	earlier *ObjectState
	// created is the UID of an object that the operator has created since the last record; empty if there is none.
	created types.UID
	// current is nil if the object does not exist or does not have the label of a template.
	current *observed
}

func (o ownership) record() *ObjectState { return cmp.Or(o.recorded, o.earlier) }

// decide returns what to do with the object.
func (o ownership) decide(content string) Action {
	recorded, current := o.record(), o.current
	switch {
	case current != nil && current.isTerminating && (recorded == nil || recorded.UID != current.uid):
		return actionWait
	case recorded == nil && o.isProvisioned():
		// The operator has stopped between the write of the object and that of the annotation.
		return ActionUpdate
	case recorded == nil:
		return ActionCreate
	case o.recorded == nil || recorded.Content != content:
		return ActionUpdate
	case current == nil || current.uid != recorded.UID || current.fields != recorded.Fields:
		return ActionRestore
	}
	return actionNone
}

// isProvisioned reports whether the object was applied in this initializing Namespace. Meanwhile, only users who may
// do so for templates can write to the Namespace. Later, other users can write the same metadata.
func (o ownership) isProvisioned() bool {
	return o.isInitializing && o.current != nil && o.current.namespaceUID == o.namespace && o.current.fields != ""
}

// creation returns the UID of the object that the operator has created; empty if it has created none.
func (o ownership) creation() types.UID {
	if recorded := o.record(); o.created == "" && recorded != nil && !recorded.IsAdopted {
		return recorded.UID
	}
	return o.created
}

// isAdopted reports whether another client has created the object that was applied. If it is uncertain, the object
// counts as adopted.
func (o ownership) isAdopted(applied *metav1.PartialObjectMetadata) bool {
	if recorded := o.record(); recorded != nil && recorded.UID == applied.UID {
		return recorded.IsAdopted
	}
	isOwn := o.isProvisioned() && o.current.uid == applied.UID && !hasOtherManagers(applied)
	return applied.UID != o.created && !isOwn
}

// mayReplace reports whether the operator may delete the object and create it again. If it may not, it returns why.
func (o ownership) mayReplace(kind schema.GroupKind) (bool, string) {
	switch {
	case o.creation() == "":
		return false, "the operator has not created it"
	case !permissions.MayReplace(kind):
		return false, "its deletion can delete data or stop a program"
	}
	return true, ""
}

// earlier returns what a Namespace records of an object for another template, the first by name; nil if there is none.
func (s State) earlier(key objectKey, template string) *ObjectState {
	for _, name := range slices.Sorted(maps.Keys(s)) {
		if found := s[name].find(key); name != template && found != nil {
			return found
		}
	}
	return nil
}

// creations has the UIDs of the objects that the operator has created, as the status code of the response shows,
// until the Namespace records them. It is lost when the operator stops. The objects then count as adopted: whether a
// user has created them meanwhile cannot be proven, also not if the intention had been recorded before.
type creations struct {
	mutex sync.Mutex
	byUID map[types.UID]map[objectKey]types.UID
}

func (c *creations) get(namespace types.UID, key objectKey) types.UID {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.byUID[namespace][key]
}

func (c *creations) add(namespace types.UID, key objectKey, object types.UID) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.byUID == nil {
		c.byUID = map[types.UID]map[objectKey]types.UID{}
	}
	if c.byUID[namespace] == nil {
		c.byUID[namespace] = map[objectKey]types.UID{}
	}
	c.byUID[namespace][key] = object
}

func (c *creations) forget(namespace types.UID) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	delete(c.byUID, namespace)
}
