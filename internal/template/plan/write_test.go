// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

func TestCheckExisting(t *testing.T) {
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
			g.Expect(test.own.MustFind(test.decided, test.adopt)).To(Equal(test.mustFind))
			mustReset, err := test.own.CheckExisting(wantConfigMap("config", "").Manifest, test.found, test.decided, test.adopt)
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

func TestCheckReplacement(t *testing.T) {
	invalid := apierrors.NewInvalid(configMaps.GroupKind(), "config", field.ErrorList{field.Forbidden(field.NewPath("data"), "immutable")})
	tests := map[string]struct {
		own      Ownership
		rejected error
		reason   string
	}{
		"created":                         {own: Ownership{Created: "1"}, rejected: invalid},
		"of another client":               {rejected: invalid, reason: v1alpha1.ReasonFieldImmutable},
		"rejected by an admission policy": {own: Ownership{Created: "1"}, rejected: errors.New("denied"), reason: v1alpha1.ReasonFieldImmutable},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := test.own.CheckReplacement(wantConfigMap("config", "").Manifest, test.rejected)
			NewWithT(t).Expect(reasonOf(err)).To(Equal(test.reason))
		})
	}
}

func TestReleases(t *testing.T) {
	const apply = metav1.ManagedFieldsOperationApply
	owned := func(names ...string) *metav1.PartialObjectMetadata {
		object := &metav1.PartialObjectMetadata{}
		for _, name := range names {
			object.ManagedFields = append(object.ManagedFields, entryOf(template.FieldManager(name), apply, "", "{}"))
		}
		return object
	}
	clients := owned("own")
	clients.ManagedFields = append(clients.ManagedFields, entryOf("kubectl", apply, "", "{}"),
		entryOf(template.FieldManager("released"), apply, "", releasedFields))
	tests := map[string]struct {
		applied *metav1.PartialObjectMetadata
		want    []string
		reason  string
	}{
		"other clients, and a released one": {applied: clients},
		"as many as it can have moved from": {applied: owned("a", "own", "b", "c", "d"), want: []string{"a", "b", "c", "d"}},
		"more":                              {applied: owned("a", "own", "b", "c", "d", "e"), reason: v1alpha1.ReasonConflict},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			names, err := Releases(wantConfigMap("config", "").Manifest, test.applied, "own")
			g.Expect(names).To(Equal(test.want))
			g.Expect(reasonOf(err)).To(Equal(test.reason))
		})
	}
}

func TestIsForced(t *testing.T) {
	g := NewWithT(t)
	g.Expect(IsForced(ActionCreate, v1alpha1.AdoptIfEqual)).To(BeFalse())
	g.Expect(IsForced(ActionCreate, v1alpha1.AdoptAlways)).To(BeTrue())
	g.Expect(IsForced(ActionUpdate, v1alpha1.AdoptNever)).To(BeTrue())
}

func TestOtherName(t *testing.T) {
	g := NewWithT(t)
	long := strings.Repeat("a", 253)
	g.Expect(OtherName("uid", long)).To(And(HaveLen(52), Not(Equal(OtherName("uid", long+"b")))))
	g.Expect(OtherName("uid", "a")).NotTo(Equal(OtherName("other", "a")))
}

// The API server must confirm what a deletion depends on.
func TestIsConfirmed(t *testing.T) {
	tmpl := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a", Generation: 3}}
	latest := template.Revision(&tmpl.Spec)
	tests := map[string]struct {
		revision string
		change   func(namespace *corev1.Namespace, live *v1alpha1.NamespaceTemplate)
		want     bool
	}{
		"the latest revision":  {revision: latest, want: true},
		"the current revision": {revision: "current", want: true},
		"an earlier revision":  {revision: "earlier"},
		"no revision":          {want: true},
		"of the status":        {revision: "earlier", change: func(_ *corev1.Namespace, live *v1alpha1.NamespaceTemplate) { live.Status.CurrentRevision = "earlier" }},
		"another template":     {change: func(_ *corev1.Namespace, live *v1alpha1.NamespaceTemplate) { live.UID = "b" }},
		"a changed template":   {change: func(_ *corev1.Namespace, live *v1alpha1.NamespaceTemplate) { live.Generation++ }},
		"another namespace":    {change: func(namespace *corev1.Namespace, _ *v1alpha1.NamespaceTemplate) { namespace.UID = "b" }},
		"other labels": {change: func(namespace *corev1.Namespace, _ *v1alpha1.NamespaceTemplate) {
			namespace.Labels = map[string]string{"a": "b"}
		}},
		"other annotations": {change: func(namespace *corev1.Namespace, _ *v1alpha1.NamespaceTemplate) {
			namespace.Annotations = map[string]string{"a": "b"}
		}},
		"a terminating namespace": {change: func(namespace *corev1.Namespace, _ *v1alpha1.NamespaceTemplate) {
			namespace.DeletionTimestamp = ptr.To(metav1.Now())
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p, live := newPass(nil), tmpl.DeepCopy()
			namespace := p.Namespace.DeepCopy()
			if test.change != nil {
				test.change(namespace, live)
			}
			NewWithT(t).Expect(p.IsConfirmed(namespace, live, tmpl, test.revision, "current")).To(Equal(test.want))
		})
	}
}
