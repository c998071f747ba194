// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/nslifecycle/nslifecycle/internal/template"
)

// If an applied manifest no longer contains a field, the API server removes the field only if no other field manager
// owns it. Therefore, the operator first removes the ownership of other managers for the fields that a template drops.

// hasSharedFields reports whether another client also owns fields that a template has set. It ignores the status, and
// objects with too many field managers, whose ownership is removed anyway. The field managers of other templates count
// as other clients, because every client can use their names.
func hasSharedFields(entries []metav1.ManagedFieldsEntry, templateName string) bool {
	own := claimsOf(templateName)
	isOther := isOtherThan(own)
	if IsCrowded(entries) || !slices.ContainsFunc(entries, own) || !slices.ContainsFunc(entries, isOther) {
		return false
	}
	claimed := claims(entries, own)
	return slices.ContainsFunc(entries, func(entry metav1.ManagedFieldsEntry) bool {
		return isOther(entry) && !fieldsIn(entry).Intersection(claimed).Empty()
	})
}

// withoutClaims returns the managedFields of an object without the entries of other clients for dropped fields. A field
// is dropped if the template has set it before and does not set it now. If an object moves from another template, the
// fields of the other template are dropped, too. withoutClaims returns nil if no other client owns a dropped field.
func withoutClaims(
	entries, applied []metav1.ManagedFieldsEntry, templateName string, isNew bool,
) ([]metav1.ManagedFieldsEntry, error) {
	own := claimsOf(templateName)
	if isNew {
		own = isTemplateClaim
	}
	isOther := isOtherThan(own)
	dropped := droppedFields(claims(entries, own), claims(applied, claimsOf(templateName)))
	var disowned []metav1.ManagedFieldsEntry
	hasChanged := false
	for _, entry := range entries {
		before := fieldsIn(entry)
		if after := before.RecursiveDifference(dropped); isOther(entry) && !after.Equals(before) {
			hasChanged = true
			if after.Empty() {
				continue
			}
			raw, err := after.ToJSON()
			if err != nil {
				return nil, fmt.Errorf("failed to encode the managedFields of %q: %w", entry.Manager, err)
			}
			entry.FieldsV1 = metav1.NewFieldsV1(string(raw))
		}
		disowned = append(disowned, entry)
	}
	if !hasChanged {
		return nil, nil
	}
	return disowned, nil
}

// ownClaims returns the entries of a template in the managedFields of an object.
func ownClaims(entries []metav1.ManagedFieldsEntry, templateName string) []metav1.ManagedFieldsEntry {
	isOwn := claimsOf(templateName)
	return slices.DeleteFunc(slices.Clone(entries), func(entry metav1.ManagedFieldsEntry) bool { return !isOwn(entry) })
}

// droppedFields returns the fields in before that are neither in after nor contain a field in after.
func droppedFields(before, after *fieldpath.Set) *fieldpath.Set {
	dropped := &fieldpath.Set{}
	before.Difference(after).Iterate(func(path fieldpath.Path) {
		below := after
		for _, element := range path {
			below = below.WithPrefix(element)
		}
		if below.Empty() {
			dropped.Insert(path.Copy())
		}
	})
	return dropped
}

func isTemplateClaim(entry metav1.ManagedFieldsEntry) bool {
	return strings.HasPrefix(entry.Manager, template.FieldManagerPrefix) && entry.Subresource == "" &&
		entry.Operation == metav1.ManagedFieldsOperationApply
}

// claimsOf returns a function that selects the entries of a template.
func claimsOf(templateName string) func(metav1.ManagedFieldsEntry) bool {
	manager := template.FieldManager(templateName)
	return func(entry metav1.ManagedFieldsEntry) bool { return isTemplateClaim(entry) && entry.Manager == manager }
}

// isOtherThan returns a function that selects all entries except entries of the status and entries that own selects.
func isOtherThan(own func(metav1.ManagedFieldsEntry) bool) func(metav1.ManagedFieldsEntry) bool {
	return func(entry metav1.ManagedFieldsEntry) bool { return entry.Subresource == "" && !own(entry) }
}

// claims returns the fields in the selected entries.
func claims(entries []metav1.ManagedFieldsEntry, isWanted func(metav1.ManagedFieldsEntry) bool) *fieldpath.Set {
	set := &fieldpath.Set{}
	for _, entry := range entries {
		if isWanted(entry) {
			set = set.Union(fieldsIn(entry))
		}
	}
	return set
}

// fieldsIn returns the fields of an entry. The API server does not store entries that cannot be decoded.
func fieldsIn(entry metav1.ManagedFieldsEntry) *fieldpath.Set {
	set := &fieldpath.Set{}
	if set.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())) != nil {
		return &fieldpath.Set{}
	}
	return set
}

// isEscaped reports whether managedFields of templates can be escaped.
func isEscaped(entries []metav1.ManagedFieldsEntry) bool {
	return slices.ContainsFunc(entries, func(entry metav1.ManagedFieldsEntry) bool {
		return isTemplateClaim(entry) && strings.Contains(entry.FieldsV1.GetRawString(), `\u`)
	})
}
