// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/dryrun"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

// withSharedFields lets another client claim a field of the template, and makes it too few for many clients.
func withSharedFields(m *metav1.PartialObjectMetadata) {
	m.ManagedFields = []metav1.ManagedFieldsEntry{
		entryOf(template.FieldManager("a"), metav1.ManagedFieldsOperationApply, "", `{"f:data":{"f:key":{}}}`),
		entryOf("kubectl", metav1.ManagedFieldsOperationUpdate, "", `{"f:data":{"f:key":{}}}`),
	}
}

func withManyManagers(m *metav1.PartialObjectMetadata) {
	for range maxManagers + 1 {
		m.ManagedFields = append(m.ManagedFields, entryOf("kubectl", metav1.ManagedFieldsOperationUpdate, "", "{}"))
	}
}

// exchange is a recorded exchange about the object "one" of template "a".
type exchange struct {
	adopt    v1alpha1.AdoptionPolicy
	conflict v1alpha1.ConflictPolicy
	// recorded is what the Namespace records; the template if it is empty.
	recorded     *template.ObjectState
	owner        string
	current      *Observed
	created      bool
	restorations restorations
	isNew        bool
	// responses are the recorded responses by step; the default for others.
	responses map[step]Response
	sent      []string
	// reason is that of the problem; "unconfirmed" if the cache is stale, and empty if the object was applied.
	reason string
	// isAdopted is true if another client has created the object that was applied.
	isAdopted bool
	writes    []Action
}

// Each case is an exchange with recorded responses.
func TestExchanges(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{}, "one", errors.New("x"))
	applyConflict := apierrors.NewApplyConflict(nil, "conflict with kubectl")
	invalid := apierrors.NewInvalid(configMaps.GroupKind(), "one", field.ErrorList{field.Forbidden(field.NewPath("data"), "immutable")})
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "one", errors.New("x"))
	notFound := apierrors.NewNotFound(schema.GroupResource{}, "one")
	unsupported := &dryrun.UnsupportedError{}
	denied := apierrors.NewInvalid(configMaps.GroupKind(), "one", nil)
	failed := errors.New("x")
	recorded, adopted := recordedConfigMap("one"), recordedConfigMap("one")
	adopted.IsAdopted = true
	own := &Observed{UID: objectUID, Template: "a", NamespaceUID: namespaceUID, Fields: "fields"}
	with := func(change func(*Observed)) *Observed {
		changed := *own
		change(&changed)
		return &changed
	}
	shared, crowded := with(func(o *Observed) { o.IsShared = true }), with(func(o *Observed) { o.IsCrowded = true })
	changed := with(func(o *Observed) { o.Fields = "x" })
	found := func(change ...func(*metav1.PartialObjectMetadata)) Response {
		return Response{Metadata: metadataOfObject("one", "a", objectUID, change...)}
	}
	escaped := func(m *metav1.PartialObjectMetadata) {
		m.ManagedFields[0].FieldsV1 = metav1.NewFieldsV1(`{"f:data":{"f:\u0026":{}}}`)
	}
	object := versioned("")
	movedFrom := func(names ...string) func(*metav1.PartialObjectMetadata) {
		return func(m *metav1.PartialObjectMetadata) {
			for _, name := range names {
				m.ManagedFields = append(m.ManagedFields, entryOf(template.FieldManager(name), metav1.ManagedFieldsOperationApply, "", "{}"))
			}
		}
	}
	appliedAs := func(isCreated bool, change ...func(*metav1.PartialObjectMetadata)) Response {
		return Response{Metadata: found(change...).Metadata, Object: object, IsCreated: isCreated}
	}
	other := otherName(namespaceUID, "one")
	const (
		findOne, apply1, forced = "Find one", "Apply one", "Apply one forced"
		preview, unconfirmed    = "Apply one dry forced", "unconfirmed"
		confirmOne, deleteOne   = "Confirm a", "Delete one uid=object-uid version=5"
		setManagersOne          = "SetManagers one"
	)
	try := "Apply " + other + " dry forced"
	replaced := []string{forced, try, confirmOne, findOne, deleteOne, forced}
	invalidOnce := func(more map[step]Response) map[step]Response {
		all := map[step]Response{apply: {Err: invalid}, findMarked: found()}
		for key, value := range more {
			all[key] = value
		}
		return all
	}
	repeated := restorations{template.KeyOf(object): {count: maxRestorations, last: start}}
	described := restorations{template.KeyOf(object): {count: maxRestorations, last: start, conflict: "rival"}}
	create, update, restore := []Action{ActionCreate}, []Action{ActionUpdate}, []Action{ActionRestore}
	tests := map[string]exchange{
		// Creation and adoption.
		"new":                                    {sent: []string{findOne, apply1}, writes: create},
		"new, in a new namespace":                {isNew: true, sent: []string{apply1}, writes: create},
		"new, in a new namespace, Never":         {isNew: true, adopt: v1alpha1.AdoptNever, sent: []string{findOne, apply1}, writes: create},
		"it cannot be found":                     {responses: map[step]Response{find: {Err: failed}}, sent: []string{findOne}, reason: v1alpha1.ReasonApplyFailed},
		"it cannot be applied":                   {responses: map[step]Response{apply: {Err: forbidden}}, sent: []string{findOne, apply1}, reason: v1alpha1.ReasonForbidden},
		"exists, Never":                          {adopt: v1alpha1.AdoptNever, responses: map[step]Response{find: found()}, sent: []string{findOne}, reason: v1alpha1.ReasonAlreadyExists},
		"exists, Always":                         {adopt: v1alpha1.AdoptAlways, responses: map[step]Response{find: found(), apply: appliedAs(false)}, sent: []string{findOne, forced}, writes: create, isAdopted: true},
		"exists, IfEqual, without a conflict":    {adopt: v1alpha1.AdoptIfEqual, responses: map[step]Response{apply: appliedAs(false)}, sent: []string{findOne, apply1}, writes: create, isAdopted: true},
		"exists with many managers":              {responses: map[step]Response{find: found(withManyManagers)}, sent: []string{findOne}, reason: v1alpha1.ReasonConflict},
		"exists with many managers, Always":      {adopt: v1alpha1.AdoptAlways, responses: map[step]Response{find: found(withManyManagers), apply: appliedAs(false)}, sent: []string{findOne, setManagersOne, forced}, writes: create, isAdopted: true},
		"many managers that cannot be removed":   {adopt: v1alpha1.AdoptAlways, responses: map[step]Response{find: found(withManyManagers), setManagers: {Err: forbidden}}, sent: []string{findOne, setManagersOne}, reason: v1alpha1.ReasonForbidden},
		"many managers, deleted meanwhile":       {adopt: v1alpha1.AdoptAlways, responses: map[step]Response{find: found(withManyManagers), setManagers: {Err: notFound}}, sent: []string{findOne, setManagersOne, forced}, writes: create},
		"a conflict, Never":                      {isNew: true, adopt: v1alpha1.AdoptNever, responses: map[step]Response{apply: {Err: applyConflict}}, sent: []string{findOne, apply1}, reason: v1alpha1.ReasonConflict},
		"a conflict, IfEqual, equal":             {adopt: v1alpha1.AdoptIfEqual, responses: map[step]Response{apply: {Err: applyConflict}, readExisting: {Object: versioned("7")}}, sent: []string{findOne, apply1, "Read one", preview + " version=7", forced + " version=7"}, writes: create, isAdopted: true},
		"a conflict, IfEqual, unequal":           {adopt: v1alpha1.AdoptIfEqual, responses: map[step]Response{apply: {Err: applyConflict}, readExisting: {Object: versioned("7")}, previewExisting: {Object: wantConfigMap("two", "").Manifest}}, sent: []string{findOne, apply1, "Read one", preview + " version=7"}, reason: v1alpha1.ReasonConflict},
		"a conflict, IfEqual, changed meanwhile": {adopt: v1alpha1.AdoptIfEqual, responses: map[step]Response{apply: {Err: applyConflict}, readExisting: {Object: versioned("7")}, previewExisting: {Err: conflict}}, sent: []string{findOne, apply1, "Read one", preview + " version=7"}, reason: unconfirmed},
		"a conflict, IfEqual, no preview":        {adopt: v1alpha1.AdoptIfEqual, responses: map[step]Response{apply: {Err: applyConflict}, readExisting: {Object: versioned("7")}, previewExisting: {Err: failed}}, sent: []string{findOne, apply1, "Read one", preview + " version=7"}, reason: v1alpha1.ReasonApplyFailed},
		"a conflict, IfEqual, unreadable":        {adopt: v1alpha1.AdoptIfEqual, responses: map[step]Response{apply: {Err: applyConflict}, readExisting: {Err: failed}}, sent: []string{findOne, apply1, "Read one"}, reason: v1alpha1.ReasonApplyFailed},
		"a conflict, IfEqual, no dry run":        {adopt: v1alpha1.AdoptIfEqual, responses: map[step]Response{apply: {Err: applyConflict}, readExisting: {Err: unsupported}}, sent: []string{findOne, apply1, "Read one"}, reason: v1alpha1.ReasonConflict},
		"created, and the record has failed":     {created: true, adopt: v1alpha1.AdoptNever, responses: map[step]Response{find: found(), apply: appliedAs(false)}, sent: []string{findOne, apply1}, writes: create},
		// Changes.
		"a changed manifest":         {recorded: &recorded, current: own, responses: map[step]Response{apply: appliedAs(false)}, sent: []string{forced}, writes: update},
		"changed by another client":  {recorded: same(recorded), current: changed, responses: map[step]Response{apply: appliedAs(false)}, sent: []string{forced}, writes: restore},
		"deleted by another client":  {recorded: same(recorded), sent: []string{findOne, forced}, writes: restore},
		"a crowded object":           {recorded: &recorded, current: crowded, responses: map[step]Response{find: found(withManyManagers), apply: appliedAs(false)}, sent: []string{findOne, setManagersOne, forced}, writes: update},
		"shared, nothing is dropped": {recorded: &recorded, current: shared, responses: map[step]Response{find: found(withSharedFields), previewClaims: {Metadata: found(withSharedFields).Metadata}, apply: appliedAs(false)}, sent: []string{findOne, preview, forced}, writes: update},
		"shared, a field is dropped": {recorded: &recorded, current: shared, responses: map[step]Response{find: found(withSharedFields), previewClaims: found(), setManagers: {Metadata: withVersion("6")}, apply: appliedAs(false)}, sent: []string{findOne, preview, setManagersOne + " version=5", forced + " version=6"}, writes: update},
		"shared, changed meanwhile":  {recorded: &recorded, current: shared, responses: map[step]Response{find: found(withSharedFields), previewClaims: found(), setManagers: {Err: conflict}}, sent: []string{findOne, preview, setManagersOne + " version=5"}, reason: unconfirmed},
		"shared, changed after that": {recorded: &recorded, current: shared, responses: map[step]Response{find: found(withSharedFields), previewClaims: found(), setManagers: {Metadata: withVersion("6")}, apply: {Err: conflict}}, sent: []string{findOne, preview, setManagersOne + " version=5", forced + " version=6"}, reason: unconfirmed},
		"shared, deleted meanwhile":  {recorded: &recorded, current: shared, responses: map[step]Response{find: found(withSharedFields), previewClaims: found(), setManagers: {Err: notFound}, apply: appliedAs(true)}, sent: []string{findOne, preview, setManagersOne + " version=5", forced}, writes: update},
		"shared, forbidden":          {recorded: &recorded, current: shared, responses: map[step]Response{find: found(withSharedFields), previewClaims: found(), setManagers: {Err: forbidden}}, sent: []string{findOne, preview, setManagersOne + " version=5"}, reason: v1alpha1.ReasonForbidden},
		"shared, no dry run":         {recorded: &recorded, current: shared, responses: map[step]Response{find: found(withSharedFields), previewClaims: {Err: unsupported}, apply: appliedAs(false)}, sent: []string{findOne, preview, forced}, writes: update},
		"shared, the preview fails":  {recorded: &recorded, current: shared, responses: map[step]Response{find: found(withSharedFields), previewClaims: {Err: failed}}, sent: []string{findOne, preview}, reason: v1alpha1.ReasonApplyFailed},
		"shared in the cache only":   {recorded: &recorded, current: shared, responses: map[step]Response{find: {}}, sent: []string{findOne, forced}, writes: update},
		// Conflicts.
		"again and again":                     {recorded: same(recorded), current: changed, restorations: repeated, responses: map[step]Response{describe: {Err: applyConflict}}, sent: []string{"Apply one dry"}, reason: v1alpha1.ReasonConflict},
		"again and again, described":          {recorded: same(recorded), current: changed, restorations: described, reason: v1alpha1.ReasonConflict},
		"deleted again and again":             {recorded: same(recorded), restorations: repeated, reason: v1alpha1.ReasonConflict},
		"crowded again and again":             {recorded: same(recorded), current: with(func(o *Observed) { o.Fields, o.IsCrowded = "x", true }), restorations: repeated, reason: v1alpha1.ReasonConflict},
		"again, and the operator may restore": {recorded: same(recorded), current: changed, restorations: restorations{template.KeyOf(object): {count: 1, last: start}}, responses: map[step]Response{apply: appliedAs(false)}, sent: []string{forced}, writes: restore},
		"an unrecorded restoration":           {recorded: same(recorded), current: changed, restorations: restorations{template.KeyOf(object): {count: maxRestorations, last: start, uid: objectUID, fields: "x"}}, responses: map[step]Response{apply: appliedAs(false)}, sent: []string{forced}, writes: restore},
		// Replacement.
		"an immutable field":                        {recorded: &recorded, current: own, responses: invalidOnce(nil), sent: replaced, writes: []Action{ActionDelete, ActionUpdate}},
		"an immutable field of an adopted object":   {recorded: &adopted, current: own, responses: invalidOnce(nil), sent: replaced[:2], reason: v1alpha1.ReasonFieldImmutable},
		"an immutable field, rejected by a policy":  {recorded: &recorded, current: own, responses: invalidOnce(map[step]Response{apply: {Err: denied}}), sent: replaced[:2], reason: v1alpha1.ReasonFieldImmutable},
		"an invalid object":                         {recorded: &recorded, current: own, responses: invalidOnce(map[step]Response{tryOtherName: {Err: invalid}}), sent: replaced[:2], reason: v1alpha1.ReasonInvalidObject},
		"an invalid change, no quota for a new one": {recorded: &recorded, current: own, responses: invalidOnce(map[step]Response{tryOtherName: {Err: forbidden}}), sent: replaced[:2], reason: v1alpha1.ReasonFieldImmutable},
		"an invalid change, it is unknown why":      {recorded: &recorded, current: own, responses: invalidOnce(map[step]Response{tryOtherName: {Err: failed}}), sent: replaced[:2], reason: v1alpha1.ReasonInvalidObject},
		"an invalid change, the other name exists":  {recorded: &recorded, current: own, responses: invalidOnce(map[step]Response{tryOtherName: appliedAs(false)}), sent: replaced[:2], reason: v1alpha1.ReasonInvalidObject},
		"replaced, but the cache is stale":          {recorded: &recorded, current: own, responses: invalidOnce(map[step]Response{confirmReplacement: {Err: ErrUnconfirmed}}), sent: replaced[:3], reason: unconfirmed},
		"replaced, deleted meanwhile":               {recorded: &recorded, current: own, responses: invalidOnce(map[step]Response{findMarked: {}}), sent: append(append([]string{}, replaced[:4]...), forced), writes: update},
		"replaced, recreated by another client":     {recorded: &recorded, current: own, responses: invalidOnce(map[step]Response{findMarked: {Metadata: metadataOfObject("one", "a", "other")}}), sent: replaced[:4], reason: v1alpha1.ReasonFieldImmutable},
		"replaced, without the mark":                {recorded: &recorded, current: own, responses: invalidOnce(map[step]Response{findMarked: {Metadata: metadataOfObject("one", "x", objectUID)}}), sent: replaced[:4], reason: v1alpha1.ReasonFieldImmutable},
		"replaced, cannot be found":                 {recorded: &recorded, current: own, responses: invalidOnce(map[step]Response{findMarked: {Err: failed}}), sent: replaced[:4], reason: v1alpha1.ReasonApplyFailed},
		"replaced, changed meanwhile":               {recorded: &recorded, current: own, responses: invalidOnce(map[step]Response{deleteMarked: {Err: conflict}}), sent: replaced[:5], reason: unconfirmed},
		"replaced, the deletion is forbidden":       {recorded: &recorded, current: own, responses: invalidOnce(map[step]Response{deleteMarked: {Err: forbidden}}), sent: replaced[:5], reason: v1alpha1.ReasonFieldImmutable},
		"replaced, the deletion fails":              {recorded: &recorded, current: own, responses: invalidOnce(map[step]Response{deleteMarked: {Err: failed}}), sent: replaced[:5], reason: v1alpha1.ReasonApplyFailed},
		"replaced, finalizers delay the deletion":   {recorded: &recorded, current: own, responses: invalidOnce(map[step]Response{deleteMarked: {}}), sent: replaced[:5], reason: v1alpha1.ReasonObjectTerminating},
		"replaced, moved from another template":     {owner: "b", recorded: &recorded, current: own, responses: invalidOnce(map[step]Response{findMarked: {Metadata: metadataOfObject("one", "b", objectUID)}}), sent: replaced, writes: []Action{ActionDelete, ActionUpdate}},
		"replaced, moved, without the earlier mark": {owner: "b", recorded: &recorded, current: own, responses: invalidOnce(nil), sent: replaced[:4], reason: v1alpha1.ReasonFieldImmutable},
		"shared, immutable: the object is replaced": {recorded: &recorded, current: shared, responses: invalidOnce(map[step]Response{find: found(withSharedFields), previewClaims: {Err: invalid}}), sent: append([]string{findOne, preview}, replaced...), writes: []Action{ActionDelete, ActionUpdate}},
		// Moves from other templates.
		"moved":                       {owner: "b", recorded: &recorded, current: own, responses: map[step]Response{apply: appliedAs(false, movedFrom("b")), release: found()}, sent: []string{forced, "Apply one as=b"}, writes: update},
		"moved from two":              {owner: "b", recorded: &recorded, current: own, responses: map[step]Response{apply: appliedAs(false, movedFrom("b", "c"))}, sent: []string{forced, "Apply one as=b", "Apply one as=c"}, writes: update},
		"moved, the release fails":    {owner: "b", recorded: &recorded, current: own, responses: map[step]Response{apply: appliedAs(false, movedFrom("b")), release: {Err: forbidden}}, sent: []string{forced, "Apply one as=b"}, reason: v1alpha1.ReasonForbidden, writes: update},
		"with many field managers":    {responses: map[step]Response{apply: appliedAs(true, movedFrom("b", "c", "d", "e", "f"))}, sent: []string{findOne, apply1}, reason: v1alpha1.ReasonConflict, writes: create},
		"escaped":                     {responses: map[step]Response{apply: appliedAs(true, escaped), findApplied: found()}, sent: []string{findOne, apply1, findOne}, writes: create},
		"escaped, it cannot be read":  {responses: map[step]Response{apply: appliedAs(true, escaped), findApplied: {Err: failed}}, sent: []string{findOne, apply1, findOne}, reason: v1alpha1.ReasonApplyFailed, writes: create},
		"escaped, deleted meanwhile":  {responses: map[step]Response{apply: appliedAs(true, escaped), findApplied: {}}, sent: []string{findOne, apply1, findOne}, reason: unconfirmed, writes: create},
		"escaped, replaced meanwhile": {responses: map[step]Response{apply: appliedAs(true, escaped), findApplied: {Metadata: metadataOfObject("one", "a", "other")}}, sent: []string{findOne, apply1, findOne}, reason: unconfirmed, writes: create},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			wanted, state := *wantConfigMap("one", "new"), template.Record{}
			wanted.Current = test.current
			if test.recorded != nil {
				owner := test.owner
				if owner == "" {
					owner = "a"
				}
				state[owner] = template.Entry{Revision: "b", Objects: []template.ObjectState{*test.recorded}}
			}
			s := snapshotOf(state)
			if test.isNew {
				s = initializing(s)
			}
			s = s.with(applied{name: "a", revision: "b", objects: []ObjectSnapshot{wanted}, change: func(t *v1alpha1.NamespaceTemplate) {
				t.Spec.Sync.AdoptionPolicy, t.Spec.Sync.ConflictPolicy = test.adopt, test.conflict
			}})
			memory := Memory{Restorations: test.restorations, NextFullPass: start.Add(24 * time.Hour)}
			if test.created {
				template.Put(&memory.Created, wanted.Key(), objectUID)
			}
			attempts := 0
			outcome, memory, sent := pass(s, memory, func(o Operation) *Response {
				response, ok := test.responses[o.step]
				if !ok {
					return nil
				}
				if o.step == apply && response.Err != nil {
					if attempts++; attempts > 1 {
						return new(appliedAs(!test.isAdopted))
					}
				}
				return &response
			})
			g.Expect(sent).To(Equal(test.sent))
			var reasons []string
			for _, found := range outcome.Templates[0].Problems {
				reasons = append(reasons, found.Reason)
			}
			var writes []Action
			for _, write := range outcome.Writes {
				writes = append(writes, write.Action)
			}
			g.Expect(writes).To(Equal(test.writes))
			recorded := outcome.State["a"].Find(wanted.Key())
			switch test.reason {
			case "":
				g.Expect(reasons).To(BeEmpty())
				g.Expect(recorded).To(HaveValue(And(HaveField("Content", "new"), HaveField("IsAdopted", test.isAdopted))))
			case unconfirmed:
				g.Expect(reasons).To(BeEmpty())
				g.Expect(outcome.RetryAfter).To(Equal(unconfirmedRetry))
			default:
				g.Expect(reasons).To(Equal([]string{test.reason}))
			}
			if test.restorations != nil && test.reason == v1alpha1.ReasonConflict {
				g.Expect(memory.Restorations[wanted.Key()].conflict).NotTo(BeEmpty())
				g.Expect(outcome.RetryAfter).To(Equal(reportInterval))
			}
		})
	}
}

// same returns the record of an object with the content of the template.
func same(recorded template.ObjectState) *template.ObjectState {
	recorded.Content = "new"
	return &recorded
}

func withVersion(version string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}}
}

// What a second attempt returns is the result.
func TestReplacementIsNotRepeated(t *testing.T) {
	g := NewWithT(t)
	invalid := apierrors.NewInvalid(configMaps.GroupKind(), "one", field.ErrorList{field.Forbidden(field.NewPath("data"), "immutable")})
	wanted := *wantConfigMap("one", "new")
	wanted.Current = &Observed{UID: objectUID, NamespaceUID: namespaceUID, Fields: "fields"}
	s := snapshotOf(template.Record{"a": {Revision: "b", Objects: []template.ObjectState{recordedConfigMap("one")}}}).
		with(applied{name: "a", revision: "b", objects: []ObjectSnapshot{wanted}})
	outcome, _, sent := pass(s, Memory{}, func(o Operation) *Response {
		if o.step == apply {
			return &Response{Err: invalid}
		}
		return nil
	})
	g.Expect(sent).To(HaveLen(6))
	g.Expect(reasonsOf(outcome.Templates[0].Problems)).To(Equal([]string{v1alpha1.ReasonInvalidObject}))
}

// An object that must not be in a template is not sent.
func TestManifestsAreChecked(t *testing.T) {
	g, wanted := NewWithT(t), *wantConfigMap("one", "new")
	wanted.Manifest.SetNamespace("other")
	outcome, _, sent := pass(snapshotOf(nil).with(applied{name: "a", revision: "b", objects: []ObjectSnapshot{wanted}}), Memory{}, nil)
	g.Expect(sent).To(BeEmpty())
	g.Expect(reasonsOf(outcome.Templates[0].Problems)).To(Equal([]string{v1alpha1.ReasonInvalidObject}))
}
