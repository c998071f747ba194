// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
			g.Expect(reason == "").To(Equal(mayReplace))
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

func TestConflictsOnlyWithOwnKeys(t *testing.T) {
	conflict := func(fields ...string) error {
		var causes []metav1.StatusCause
		for _, field := range fields {
			causes = append(causes, metav1.StatusCause{Type: metav1.CauseTypeFieldManagerConflict, Field: field, Message: "x"})
		}
		return apierrors.NewApplyConflict(causes, "x")
	}
	uid := ".metadata.annotations." + v1alpha1.AnnotationNamespaceUID
	tests := map[string]struct {
		err  error
		want bool
	}{
		"annotation":           {conflict(uid), true},
		"all keys":             {fmt.Errorf("x: %w", conflict(uid, ".metadata.labels.nslifecycle.dev/template", ".metadata.labels.nslifecycle.dev/locked")), true},
		"a field too":          {conflict(uid, ".data.key"), false},
		"a longer key":         {conflict(uid + "x"), false},
		"no causes":            {conflict(), false},
		"a changed object":     {apierrors.NewConflict(schema.GroupResource{}, "config", errors.New("x")), false},
		"another error":        {errors.New("x"), false},
		"an invalid object":    {apierrors.NewInvalid(schema.GroupKind{}, "config", nil), false},
		"a different cause":    {apierrors.NewApplyConflict([]metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid, Field: uid}}, "x"), false},
		"denied by a webhook":  {apierrors.NewApplyConflict(nil, `admission webhook "a" denied the request: x`), false},
		"no error":             {nil, false},
		"a conflict of labels": {conflict(".metadata.labels.team"), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(conflictsOnlyWithOwnKeys(test.err)).To(Equal(test.want))
		})
	}
}
