// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/internal/template"
)

func entryOf(
	manager string, operation metav1.ManagedFieldsOperationType, subresource, fields string,
) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: operation, Subresource: subresource, FieldsV1: metav1.NewFieldsV1(fields),
	}
}

func TestHasOtherManagers(t *testing.T) {
	apply, update := metav1.ManagedFieldsOperationApply, metav1.ManagedFieldsOperationUpdate
	own := entryOf(template.FieldManager("a"), apply, "", "{}")
	for name, test := range map[string]struct {
		entry metav1.ManagedFieldsEntry
		want  bool
	}{
		"another client":         {entryOf("kubectl", update, "", "{}"), true},
		"another template":       {entryOf(template.FieldManager("b"), apply, "", "{}"), false},
		"a controller's status":  {entryOf("kube-controller-manager", update, "status", "{}"), false},
		"only the same template": {own, false},
	} {
		t.Run(name, func(t *testing.T) {
			response := &metav1.PartialObjectMetadata{}
			response.ManagedFields = []metav1.ManagedFieldsEntry{own, test.entry}
			NewWithT(t).Expect(hasOtherManagers(response)).To(Equal(test.want))
		})
	}
}

// Each case is one possible object under the name of a template object, with all decisions about it.
func TestOwnership(t *testing.T) {
	created := recordedConfigMap("config")
	adopted := created
	adopted.IsAdopted = true
	own := Observed{UID: objectUID, Template: "a", NamespaceUID: namespaceUID, Fields: "fields"}
	with := func(change func(*Observed)) *Observed {
		changed := own
		change(&changed)
		return &changed
	}
	replaced := with(func(o *Observed) { o.UID = "other" })
	terminating := with(func(o *Observed) { o.IsTerminating = true })
	apply := metav1.ManagedFieldsOperationApply
	alone := []metav1.ManagedFieldsEntry{entryOf(template.FieldManager("a"), apply, "", "{}")}
	shared := append(alone, entryOf("kubectl", metav1.ManagedFieldsOperationUpdate, "", "{}"))
	tests := map[string]struct {
		Ownership
		content string
		// applied is the object after it was applied.
		applied types.UID
		fields  []metav1.ManagedFieldsEntry

		action     Action
		isAdopted  bool
		mayReplace bool
	}{
		"as recorded":              {Ownership{Recorded: &created, Current: &own}, "content", objectUID, alone, NoAction, false, true},
		"as recorded, adopted":     {Ownership{Recorded: &adopted, Current: &own}, "content", objectUID, shared, NoAction, true, false},
		"changed manifest":         {Ownership{Recorded: &created, Current: &own}, "new", objectUID, shared, ActionUpdate, false, true},
		"changed manifest, absent": {Ownership{Recorded: &created, Created: "new"}, "new", "new", alone, ActionUpdate, false, true},
		"changed by another client": {
			Ownership{Recorded: &created, Current: with(func(o *Observed) { o.Fields = "x" })}, "content", objectUID, shared, ActionRestore, false, true,
		},
		"deleted": {Ownership{Recorded: &created, Created: "new"}, "content", "new", alone, ActionRestore, false, true},
		"deleted, adopted, and created again": {
			Ownership{Recorded: &adopted, Created: "new"}, "content", "new", alone, ActionRestore, false, true,
		},
		// The API server rejects the deletion of the object with the recorded UID.
		"replaced by another client":              {Ownership{Recorded: &created, Current: replaced}, "content", "other", alone, ActionRestore, true, true},
		"replaced by another client, was adopted": {Ownership{Recorded: &adopted, Current: replaced}, "content", "other", alone, ActionRestore, true, false},

		"new":                                  {Ownership{Created: objectUID}, "content", objectUID, alone, ActionCreate, false, true},
		"exists without a label":               {Ownership{}, "content", objectUID, shared, ActionCreate, true, false},
		"exists without a label, forged":       {Ownership{}, "content", objectUID, alone, ActionCreate, true, false},
		"exists, all metadata forged":          {Ownership{Current: &own}, "content", objectUID, alone, ActionCreate, true, false},
		"created, and the record has failed":   {Ownership{Current: &own, Created: objectUID}, "content", objectUID, alone, ActionCreate, false, true},
		"replaced after the record has failed": {Ownership{Current: replaced, Created: objectUID}, "content", "other", alone, ActionCreate, true, true},
		"restored from a backup": {
			Ownership{Current: with(func(o *Observed) { o.NamespaceUID = "earlier" })}, "content", objectUID, alone, ActionCreate, true, false,
		},

		"initializing, new":              {Ownership{IsInitializing: true, Created: objectUID}, "content", objectUID, alone, ActionCreate, false, true},
		"initializing, not recorded":     {Ownership{IsInitializing: true, Current: &own}, "content", objectUID, alone, ActionUpdate, false, false},
		"initializing, also by another":  {Ownership{IsInitializing: true, Current: &own}, "content", objectUID, shared, ActionUpdate, true, false},
		"initializing, without a label":  {Ownership{IsInitializing: true}, "content", objectUID, alone, ActionCreate, true, false},
		"initializing, replaced":         {Ownership{IsInitializing: true, Current: &own}, "content", "other", alone, ActionUpdate, true, false},
		"initializing, without a field":  {Ownership{IsInitializing: true, Current: with(func(o *Observed) { o.Fields = "" })}, "content", objectUID, alone, ActionCreate, true, false},
		"initializing, from a backup":    {Ownership{IsInitializing: true, Current: with(func(o *Observed) { o.NamespaceUID = "earlier" })}, "content", objectUID, alone, ActionCreate, true, false},
		"moved from another template":    {Ownership{Earlier: &created, Current: &own}, "content", objectUID, alone, ActionUpdate, false, true},
		"moved, adopted":                 {Ownership{Earlier: &adopted, Current: &own}, "content", objectUID, alone, ActionUpdate, true, false},
		"moved, recorded by both":        {Ownership{Recorded: &adopted, Earlier: &created, Current: &own}, "content", objectUID, alone, NoAction, true, false},
		"moved, replaced":                {Ownership{Earlier: &created, Current: replaced}, "content", "other", alone, ActionUpdate, true, true},
		"terminating":                    {Ownership{Recorded: &created, Current: terminating}, "content", objectUID, alone, NoAction, false, true},
		"terminating, changed manifest":  {Ownership{Recorded: &created, Current: terminating}, "new", objectUID, alone, ActionUpdate, false, true},
		"terminating, not recorded":      {Ownership{Current: terminating}, "content", objectUID, alone, WaitForDeletion, true, false},
		"terminating, another object":    {Ownership{Recorded: &adopted, Current: with(func(o *Observed) { o.UID, o.IsTerminating = "other", true })}, "content", "other", alone, WaitForDeletion, true, false},
		"terminating, while provisioned": {Ownership{IsInitializing: true, Current: terminating}, "content", objectUID, alone, WaitForDeletion, false, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			test.Namespace = namespaceUID
			applied := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: test.applied, ManagedFields: test.fields}}
			g.Expect(test.decide(test.content)).To(Equal(test.action))
			g.Expect(test.Ownership.IsAdopted(applied)).To(Equal(test.isAdopted))
			if reason := test.mustNotReplace(configMaps.GroupKind()); test.mayReplace {
				g.Expect(reason).To(BeEmpty())
			} else {
				g.Expect(reason).NotTo(BeEmpty())
			}
			g.Expect(test.mustNotReplace(schema.GroupKind{Kind: "PersistentVolumeClaim"})).NotTo(BeEmpty(), "it holds data")
		})
	}
}
