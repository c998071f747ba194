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

// The API server removes a field that an applied manifest no longer contains only if no other field manager claims it.
// Therefore, the operator first removes the claims of other managers to what a template drops.

// hasSharedFields reports whether another client also claims fields that a template has set. It ignores the status, and
// objects with too many field managers, whose claims are removed anyway. Every client can use the field manager of
// another template.
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

// withoutClaims returns the managedFields of an object without the claims of other clients to the fields that a
// template drops: the fields that it has set before and does not set now. An object that is new to the template
// moves to it from other templates, whose fields it drops, too. withoutClaims returns nil if no other client claims
// such a field.
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

// ownClaims returns the managedFields of an object without those of other clients and templates.
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

// isOtherThan returns a function that selects the entries that own does not select, except entries of the status.
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
