// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

func TestCheckAdoption(t *testing.T) {
	const never, equal, always = v1alpha1.AdoptNever, v1alpha1.AdoptIfEqual, v1alpha1.AdoptAlways
	other, crowded := &Observed{UID: "other"}, &Observed{UID: "other", IsCrowded: true}
	tests := map[string]struct {
		own     Ownership
		found   *Observed
		decided Action
		adopt   v1alpha1.AdoptionPolicy
		// mustFind is true if the API server must be asked before.
		mustFind, mustReset bool
		reason              string
	}{
		"none, a new namespace":          {own: Ownership{IsInitializing: true}, decided: ActionCreate, adopt: always},
		"none, a new namespace, Never":   {own: Ownership{IsInitializing: true}, decided: ActionCreate, adopt: never, mustFind: true},
		"none, restored, Never":          {own: Ownership{IsInitializing: true}, decided: ActionRestore, adopt: never},
		"none":                           {decided: ActionCreate, adopt: always, mustFind: true},
		"known":                          {own: Ownership{Current: other}, found: other, decided: ActionUpdate, adopt: equal},
		"shared, updated":                {own: Ownership{Current: &Observed{IsShared: true}}, found: other, decided: ActionUpdate, adopt: equal, mustFind: true},
		"shared, restored":               {own: Ownership{Current: &Observed{IsShared: true}}, found: other, decided: ActionRestore, adopt: equal},
		"crowded, restored":              {own: Ownership{Current: crowded}, found: crowded, decided: ActionRestore, adopt: equal, mustFind: true, mustReset: true},
		"of another client, Never":       {found: other, decided: ActionCreate, adopt: never, mustFind: true, reason: v1alpha1.ReasonAlreadyExists},
		"created before, Never":          {own: Ownership{Created: "other"}, found: other, decided: ActionCreate, adopt: never, mustFind: true},
		"recorded, Never":                {found: other, decided: ActionRestore, adopt: never, mustFind: true},
		"of another client, IfEqual":     {found: other, decided: ActionCreate, adopt: equal, mustFind: true},
		"crowded, IfEqual":               {found: crowded, decided: ActionCreate, adopt: equal, mustFind: true, reason: v1alpha1.ReasonConflict},
		"crowded, Always":                {found: crowded, decided: ActionCreate, adopt: always, mustFind: true, mustReset: true},
		"crowded, restored, Never":       {found: crowded, decided: ActionRestore, adopt: never, mustFind: true, mustReset: true},
		"crowded, created before, Never": {own: Ownership{Created: "other"}, found: crowded, decided: ActionCreate, adopt: never, mustFind: true, reason: v1alpha1.ReasonConflict},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(test.own.mustFind(test.decided, test.adopt)).To(Equal(test.mustFind))
			mustReset, err := test.own.CheckAdoption(wantConfigMap("config", ""), test.found, test.decided, test.adopt)
			g.Expect(mustReset).To(Equal(test.mustReset))
			g.Expect(reasonOf(err)).To(Equal(test.reason))
		})
	}
}

// reasonOf returns the reason of a problem; empty if there is none.
func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	return template.ToProblem("", "", err).Reason
}

func TestOtherName(t *testing.T) {
	g := NewWithT(t)
	long := strings.Repeat("a", 253)
	g.Expect(otherName("uid", long)).To(And(HaveLen(52), Not(Equal(otherName("uid", long+"b")))))
	g.Expect(otherName("uid", "a")).NotTo(Equal(otherName("other", "a")))
}

// The API server must confirm what a deletion depends on. The operator itself can have changed the Namespace meanwhile.
func TestIsConfirmed(t *testing.T) {
	tmpl := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a", Generation: 3}}
	latest, changed := template.Revision(&tmpl.Spec), "b"
	set := MetadataChanges{{Kind: template.KindLabel, Name: "a"}: &changed, {Kind: template.KindAnnotation, Name: "c"}: nil}
	tests := map[string]struct {
		revision string
		labels   map[string]string
		change   func(response *Response)
		want     bool
	}{
		"the latest revision":  {revision: latest, want: true},
		"the current revision": {revision: "current", want: true},
		"an earlier revision":  {revision: "earlier"},
		"no revision":          {want: true},
		"of the status":        {revision: "earlier", change: func(r *Response) { r.Template.Status.CurrentRevision = "earlier" }},
		"an own change":        {labels: map[string]string{"a": "b"}, want: true},
		"another value":        {labels: map[string]string{"a": "c"}},
		"another label":        {labels: map[string]string{"a": "b", "b": "b"}},
		"an own removal":       {change: func(r *Response) { r.Namespace.Annotations = nil }, want: true},
		"another removal":      {change: func(r *Response) { delete(r.Namespace.Annotations, "d") }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			namespace := wrappers.MakeNamespace("ns").UID(namespaceUID).Annotation("c", "c").Obj()
			if name == "another removal" {
				namespace.Annotations["d"] = "d"
			}
			o := Operation{Namespace: namespace, Template: tmpl, Choice: Choice{Revision: test.revision, Current: "current"}, changes: set}
			response := Response{Namespace: namespace.DeepCopy(), Template: tmpl.DeepCopy()}
			response.Namespace.Labels = test.labels
			if test.change != nil {
				test.change(&response)
			}
			NewWithT(t).Expect(o.isConfirmed(response)).To(Equal(test.want))
		})
	}
}

func TestFieldsOf(t *testing.T) {
	apply, update := metav1.ManagedFieldsOperationApply, metav1.ManagedFieldsOperationUpdate
	own := entryOf(template.FieldManager("a"), apply, "", `{"f:data":{}}`)
	own.Time = ptr.To(metav1.NewTime(time.Unix(1000, 0)))
	later := own
	later.Time = ptr.To(metav1.NewTime(own.Time.Add(time.Second)))
	hash := FieldsOf([]metav1.ManagedFieldsEntry{own}, "a")
	different := And(Not(BeEmpty()), Not(Equal(hash)))
	tests := map[string]struct {
		entries []metav1.ManagedFieldsEntry
		want    types.GomegaMatcher
	}{
		"with other managers": {
			[]metav1.ManagedFieldsEntry{
				entryOf("rival", apply, "", "{}"), entryOf(template.FieldManager("a"), update, "", "{}"),
				entryOf(template.FieldManager("a"), apply, "status", "{}"), own,
			}, Equal(hash),
		},
		"other fields":     {[]metav1.ManagedFieldsEntry{entryOf(template.FieldManager("a"), apply, "", "{}")}, different},
		"a later time":     {[]metav1.ManagedFieldsEntry{later}, different},
		"only an update":   {[]metav1.ManagedFieldsEntry{entryOf(template.FieldManager("a"), update, "", "{}")}, BeEmpty()},
		"another template": {[]metav1.ManagedFieldsEntry{entryOf(template.FieldManager("b"), apply, "", "{}")}, BeEmpty()},
		"none":             {nil, BeEmpty()},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(FieldsOf(test.entries, "a")).To(test.want)
		})
	}
}
