// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// Each case is one possible object under the name of a template object, with all decisions about it.
func TestOwnership(t *testing.T) {
	created := recordedConfigMap("config")
	adopted := created
	adopted.IsAdopted = true
	own := observed{uid: objectUID, template: "a", namespaceUID: namespaceUID, fields: "fields"}
	with := func(change func(*observed)) *observed {
		changed := own
		change(&changed)
		return &changed
	}
	replaced := with(func(o *observed) { o.uid = "other" })
	terminating := with(func(o *observed) { o.isTerminating = true })
	apply := metav1.ManagedFieldsOperationApply
	alone := []metav1.ManagedFieldsEntry{entryOf(FieldManager("a"), apply, "", "{}")}
	shared := append(alone, entryOf("kubectl", metav1.ManagedFieldsOperationUpdate, "", "{}"))
	tests := map[string]struct {
		ownership
		content string
		// applied is the object after it was applied.
		applied types.UID
		fields  []metav1.ManagedFieldsEntry

		action     Action
		isAdopted  bool
		mayReplace bool
	}{
		"as recorded":              {ownership{recorded: &created, current: &own}, "content", objectUID, alone, actionNone, false, true},
		"as recorded, adopted":     {ownership{recorded: &adopted, current: &own}, "content", objectUID, shared, actionNone, true, false},
		"changed manifest":         {ownership{recorded: &created, current: &own}, "new", objectUID, shared, ActionUpdate, false, true},
		"changed manifest, absent": {ownership{recorded: &created, created: "new"}, "new", "new", alone, ActionUpdate, false, true},
		"changed by another client": {
			ownership{recorded: &created, current: with(func(o *observed) { o.fields = "x" })}, "content", objectUID, shared, ActionRestore, false, true,
		},
		"deleted": {ownership{recorded: &created, created: "new"}, "content", "new", alone, ActionRestore, false, true},
		"deleted, adopted, and created again": {
			ownership{recorded: &adopted, created: "new"}, "content", "new", alone, ActionRestore, false, true,
		},
		// The API server rejects the deletion of the object with the recorded UID.
		"replaced by another client":              {ownership{recorded: &created, current: replaced}, "content", "other", alone, ActionRestore, true, true},
		"replaced by another client, was adopted": {ownership{recorded: &adopted, current: replaced}, "content", "other", alone, ActionRestore, true, false},

		"new":                                  {ownership{created: objectUID}, "content", objectUID, alone, ActionCreate, false, true},
		"exists without a label":               {ownership{}, "content", objectUID, shared, ActionCreate, true, false},
		"exists without a label, forged":       {ownership{}, "content", objectUID, alone, ActionCreate, true, false},
		"exists, all metadata forged":          {ownership{current: &own}, "content", objectUID, alone, ActionCreate, true, false},
		"created, and the record has failed":   {ownership{current: &own, created: objectUID}, "content", objectUID, alone, ActionCreate, false, true},
		"replaced after the record has failed": {ownership{current: replaced, created: objectUID}, "content", "other", alone, ActionCreate, true, true},
		"restored from a backup": {
			ownership{current: with(func(o *observed) { o.namespaceUID = "earlier" })}, "content", objectUID, alone, ActionCreate, true, false,
		},

		"initializing, new":              {ownership{isInitializing: true, created: objectUID}, "content", objectUID, alone, ActionCreate, false, true},
		"initializing, not recorded":     {ownership{isInitializing: true, current: &own}, "content", objectUID, alone, ActionUpdate, false, false},
		"initializing, also by another":  {ownership{isInitializing: true, current: &own}, "content", objectUID, shared, ActionUpdate, true, false},
		"initializing, without a label":  {ownership{isInitializing: true}, "content", objectUID, alone, ActionCreate, true, false},
		"initializing, replaced":         {ownership{isInitializing: true, current: &own}, "content", "other", alone, ActionUpdate, true, false},
		"initializing, without a field":  {ownership{isInitializing: true, current: with(func(o *observed) { o.fields = "" })}, "content", objectUID, alone, ActionCreate, true, false},
		"initializing, from a backup":    {ownership{isInitializing: true, current: with(func(o *observed) { o.namespaceUID = "earlier" })}, "content", objectUID, alone, ActionCreate, true, false},
		"moved from another template":    {ownership{earlier: &created, current: &own}, "content", objectUID, alone, ActionUpdate, false, true},
		"moved, adopted":                 {ownership{earlier: &adopted, current: &own}, "content", objectUID, alone, ActionUpdate, true, false},
		"moved, recorded by both":        {ownership{recorded: &adopted, earlier: &created, current: &own}, "content", objectUID, alone, actionNone, true, false},
		"moved, replaced":                {ownership{earlier: &created, current: replaced}, "content", "other", alone, ActionUpdate, true, true},
		"terminating":                    {ownership{recorded: &created, current: terminating}, "content", objectUID, alone, actionNone, false, true},
		"terminating, changed manifest":  {ownership{recorded: &created, current: terminating}, "new", objectUID, alone, ActionUpdate, false, true},
		"terminating, not recorded":      {ownership{current: terminating}, "content", objectUID, alone, actionWait, true, false},
		"terminating, another object":    {ownership{recorded: &adopted, current: with(func(o *observed) { o.uid, o.isTerminating = "other", true })}, "content", "other", alone, actionWait, true, false},
		"terminating, while provisioned": {ownership{isInitializing: true, current: terminating}, "content", objectUID, alone, actionWait, false, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			test.namespace = namespaceUID
			applied := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: test.applied, ManagedFields: test.fields}}
			g.Expect(test.decide(test.content)).To(Equal(test.action))
			g.Expect(test.ownership.isAdopted(applied)).To(Equal(test.isAdopted))
			mayReplace, reason := test.ownership.mayReplace(configMaps.GroupKind())
			g.Expect(mayReplace).To(Equal(test.mayReplace))
			if mayReplace {
				g.Expect(reason).To(BeEmpty())
			} else {
				g.Expect(reason).NotTo(BeEmpty())
			}
			mayReplace, _ = test.ownership.mayReplace(schema.GroupKind{Kind: "PersistentVolumeClaim"})
			g.Expect(mayReplace).To(BeFalse(), "it holds data")
		})
	}
}

func TestEarlier(t *testing.T) {
	g, key := NewWithT(t), recordedConfigMap("config").key()
	inB, inC := recordedConfigMap("config"), recordedConfigMap("config")
	inC.UID = "c"
	state := State{"a": {Objects: []ObjectState{inB}}, "b": {Objects: []ObjectState{inB}}, "c": {Objects: []ObjectState{inC}}}
	g.Expect(state.earlier(key, "a").UID).To(BeEquivalentTo(objectUID), "the first other template by name")
	delete(state, "b")
	g.Expect(state.earlier(key, "a").UID).To(BeEquivalentTo("c"))
	delete(state, "c")
	g.Expect(state.earlier(key, "a")).To(BeNil())
}

// A Namespace does not count as updated to what it does not record.
func TestNotRecorded(t *testing.T) {
	g := NewWithT(t)
	unchanged, changed := Entry{Revision: "b"}, Entry{Revision: "b", Objects: []ObjectState{recordedConfigMap("config")}}
	namespace := namespaceWithUID("ns")
	namespace.Annotations = map[string]string{
		v1alpha1.AnnotationTemplates: State{"unchanged": unchanged, "changed": {Revision: "a"}}.String(),
	}
	applier := &Applier{Rollouts: &Rollouts{}}
	applier.Rollouts.Set(rolledOut, Plan{Latest: "b", Current: "a"})
	result := Result{
		State:     State{"unchanged": unchanged, "changed": changed},
		Templates: []Outcome{{Template: "changed", uid: rolledOut, Revision: "b"}, {Template: "unchanged"}},
		Kept:      []Problem{{Reason: ReasonObjectKept}},
	}
	applier.NotRecorded(namespace, &result, errors.New("x"))
	g.Expect(result.Templates[0].Problems).To(HaveExactElements(Problem{Template: "changed", Reason: ReasonNotRecorded, Message: "x"}))
	g.Expect(result.Templates[1].Problems).To(BeEmpty())
	g.Expect(result.Kept).To(BeEmpty(), "they are still recorded")
	g.Expect(applier.Rollouts.IsBlocked(rolledOut, "ns")).To(BeTrue())
}
