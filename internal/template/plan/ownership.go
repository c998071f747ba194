// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/permissions"
)

// hasOtherManagers reports whether another client has written an object, which then may have existed
// before the template. Controllers that write the status do not count.
func hasOtherManagers(response *metav1.PartialObjectMetadata) bool {
	return slices.ContainsFunc(response.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Subresource == "" && !strings.HasPrefix(entry.Manager, template.FieldManagerPrefix)
	})
}

// Ownership is what is known about who has created an object. Whether the operator adopts, changes, replaces or deletes
// an object depends on nothing else.
type Ownership struct {
	Namespace      types.UID
	IsInitializing bool
	// Recorded is what the Namespace records for the template.
	Recorded *template.ObjectState
	// Earlier is what it records for another template, from which the object moves to this one.
	Earlier *template.ObjectState
	// Created is the UID of an object that the operator has created since the last record; empty if there is none.
	Created types.UID
	// Current is nil if the object does not exist or does not have the label of a template.
	Current *Observed
}

func (o Ownership) record() *template.ObjectState { return cmp.Or(o.Recorded, o.Earlier) }

// decide returns what to do with the object.
func (o Ownership) decide(content string) Action {
	recorded, current := o.record(), o.Current
	switch {
	case current != nil && current.IsTerminating && (recorded == nil || recorded.UID != current.UID):
		return WaitForDeletion
	case recorded == nil && o.isProvisioned():
		// The operator has stopped between the write of the object and that of the annotation.
		return ActionUpdate
	case recorded == nil:
		return ActionCreate
	case o.Recorded == nil || recorded.Content != content:
		return ActionUpdate
	case current == nil || current.UID != recorded.UID || current.Fields != recorded.Fields:
		return ActionRestore
	}
	return NoAction
}

// isProvisioned reports whether the object was applied in this initializing Namespace. Meanwhile, only users who may
// do so for templates can write to the Namespace. Later, other users can write the same metadata.
func (o Ownership) isProvisioned() bool {
	return o.IsInitializing && o.Current != nil && o.Current.NamespaceUID == o.Namespace && o.Current.Fields != ""
}

// creation returns the UID of the object that the operator has created; empty if it has created none.
func (o Ownership) creation() types.UID {
	if recorded := o.record(); o.Created == "" && recorded != nil && !recorded.IsAdopted {
		return recorded.UID
	}
	return o.Created
}

// IsAdopted reports whether another client has created the object that was applied. If it is uncertain, the object
// counts as adopted.
func (o Ownership) IsAdopted(applied *metav1.PartialObjectMetadata) bool {
	if recorded := o.record(); recorded != nil && recorded.UID == applied.UID {
		return recorded.IsAdopted
	}
	isOwn := o.isProvisioned() && o.Current.UID == applied.UID && !hasOtherManagers(applied)
	return applied.UID != o.Created && !isOwn
}

// mustNotReplace returns why the operator must not delete the object and create it again; empty if it may.
func (o Ownership) mustNotReplace(kind schema.GroupKind) string {
	switch {
	case o.creation() == "":
		return keptNotCreated
	case !permissions.MayReplace(kind):
		return "its deletion can delete data or stop a program"
	}
	return ""
}
