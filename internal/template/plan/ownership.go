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

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
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

// Ownership contains the facts about who has created an object. Only these facts decide whether the operator adopts,
// changes, replaces or deletes the object.
type Ownership struct {
	Namespace      types.UID
	IsInitializing bool
	// Recorded is the record of the object for the template.
	Recorded *template.ObjectState
	// Earlier is the record of the object for the template from which the object moves.
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

// maxManagers is the number of entries in the managedFields of an object from which the operator writes it only after
// it has removed them. The time that the API server takes for any other write grows faster than the square of the
// number: with 1,000 entries, which every user who can change the object can add, it exceeds the timeout of a request.
const maxManagers = 64

// IsCrowded reports whether an object has too many field managers.
func IsCrowded(entries []metav1.ManagedFieldsEntry) bool { return len(entries) > maxManagers }

// mustFind reports whether the API server must be asked for an object before it is written: the cache lacks objects
// without the label of a template, and the managedFields. In a new Namespace, users cannot write.
func (o Ownership) mustFind(decided Action, adopt v1alpha1.AdoptionPolicy) bool {
	if o.Current != nil {
		return o.Current.IsCrowded || o.Current.IsShared && decided == ActionUpdate ||
			decided == ActionCreate && adopt == v1alpha1.AdoptNever
	}
	return !o.IsInitializing || decided == ActionCreate && adopt == v1alpha1.AdoptNever
}

// CheckAdoption returns a problem if an existing object must not be adopted, and whether its managedFields must be
// removed before it is overridden. The object is nil if there is none.
func (o Ownership) CheckAdoption(
	wanted *ObjectSnapshot, found *Observed, decided Action, adopt v1alpha1.AdoptionPolicy,
) (mustReset bool, err error) {
	isNew := decided == ActionCreate
	switch {
	case found == nil:
		return false, nil
	case isNew && adopt == v1alpha1.AdoptNever && o.Created != found.UID:
		return false, template.Problemf(v1alpha1.ReasonAlreadyExists,
			"%s exists already, and the template does not adopt objects", describeObject(wanted))
	case found.IsCrowded && isNew && adopt != v1alpha1.AdoptAlways:
		return false, template.Problemf(v1alpha1.ReasonConflict,
			"%s has more than %d entries in its managedFields: remove them", describeObject(wanted), maxManagers)
	}
	return found.IsCrowded, nil
}
