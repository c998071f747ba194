// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

const teamManager = template.FieldManagerPrefix + "team"

func appliedBy(manager string, operation metav1.ManagedFieldsOperationType, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, FieldsV1: metav1.NewFieldsV1(fields)}
}

func TestCheckMark(t *testing.T) {
	const namespace, uid = types.UID("namespace"), types.UID("object")
	apply := metav1.ManagedFieldsOperationApply
	const unmarked = `it has neither field manager "nslifecycle-template:team" nor label ` +
		"nslifecycle.dev/managed-by-template=team with annotation nslifecycle.dev/namespace-uid"
	unlabeled := func(m *metav1.ObjectMeta) { m.Labels = nil }
	tests := map[string]struct {
		recorded types.UID
		change   func(live *metav1.ObjectMeta)
		want     string
	}{
		"marked":             {recorded: uid},
		"not recorded":       {want: keptNotCreated},
		"another object":     {recorded: "other", want: keptRecreated},
		"without label":      {recorded: uid, change: unlabeled},
		"without annotation": {recorded: uid, change: func(m *metav1.ObjectMeta) { m.Annotations = nil }},
		"without managers":   {recorded: uid, change: func(m *metav1.ObjectMeta) { m.ManagedFields = nil }},
		"without any": {recorded: uid, want: unmarked, change: func(m *metav1.ObjectMeta) {
			*m = metav1.ObjectMeta{UID: m.UID}
		}},
		"without label and managers": {recorded: uid, want: unmarked, change: func(m *metav1.ObjectMeta) {
			m.Labels, m.ManagedFields = nil, nil
		}},
		"without annotation and managers": {recorded: uid, want: unmarked, change: func(m *metav1.ObjectMeta) {
			m.Annotations, m.ManagedFields = nil, nil
		}},
		"with the label of another template": {recorded: uid, want: unmarked, change: func(m *metav1.ObjectMeta) {
			m.Labels[v1alpha1.LabelManagedByTemplate], m.ManagedFields = "other", nil
		}},
		"of another namespace": {recorded: uid, want: unmarked, change: func(m *metav1.ObjectMeta) {
			m.Annotations[v1alpha1.AnnotationNamespaceUID], m.ManagedFields = "other", nil
		}},
		"applied by another template": {recorded: uid, want: unmarked, change: func(m *metav1.ObjectMeta) {
			unlabeled(m)
			m.ManagedFields[0].Manager += "s"
		}},
		"updated": {recorded: uid, want: unmarked, change: func(m *metav1.ObjectMeta) {
			unlabeled(m)
			m.ManagedFields[0].Operation = "Update"
		}},
		"applied to its status": {recorded: uid, want: unmarked, change: func(m *metav1.ObjectMeta) {
			unlabeled(m)
			m.ManagedFields[0].Subresource = "status"
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			live := &metav1.ObjectMeta{
				UID: uid, Labels: map[string]string{v1alpha1.LabelManagedByTemplate: "team"},
				Annotations:   map[string]string{v1alpha1.AnnotationNamespaceUID: string(namespace)},
				ManagedFields: []metav1.ManagedFieldsEntry{appliedBy(teamManager, apply, "{}")},
			}
			if test.change != nil {
				test.change(live)
			}
			NewWithT(t).Expect(checkMark("team", namespace, test.recorded, live)).To(Equal(test.want))
		})
	}
}

func TestCheckMetadataMark(t *testing.T) {
	const own = `{"f:metadata":{"f:labels":{".":{},"f:tier":{}},"f:annotations":{"f:note":{}}}}`
	update := metav1.ManagedFieldsOperationUpdate
	unowned := `its managedFields do not contain "nslifecycle-template:team"`
	tests := map[string]struct {
		kind string
		// selected are the templates with which the Namespace was created.
		selected string
		value    string
		fields   []metav1.ManagedFieldsEntry
		want     string
	}{
		"set by the template":                      {value: "a", fields: []metav1.ManagedFieldsEntry{appliedBy(teamManager, update, own)}},
		"an annotation set by the template":        {kind: "Annotation", value: "a", fields: []metav1.ManagedFieldsEntry{appliedBy(teamManager, update, own)}},
		"set by the template and another manager":  {value: "a", fields: []metav1.ManagedFieldsEntry{appliedBy("kubectl", update, own), appliedBy(teamManager, update, own)}},
		"set at creation":                          {value: "a", selected: "other,team"},
		"changed":                                  {value: "b", fields: []metav1.ManagedFieldsEntry{appliedBy(teamManager, update, own)}, want: "another client has changed it"},
		"set by another manager":                   {value: "a", fields: []metav1.ManagedFieldsEntry{appliedBy("kubectl", update, own)}, want: `field manager "kubectl" has set it`},
		"set by another manager, at creation":      {value: "a", selected: "team", fields: []metav1.ManagedFieldsEntry{appliedBy("kubectl", update, own)}, want: `field manager "kubectl" has set it`},
		"set by another template":                  {value: "a", fields: []metav1.ManagedFieldsEntry{appliedBy(teamManager+"s", update, own)}, want: `field manager "nslifecycle-template:teams" has set it`},
		"set by no manager":                        {value: "a", want: unowned},
		"created with another template":            {value: "a", selected: "teams", want: unowned},
		"another key of the template":              {value: "a", fields: []metav1.ManagedFieldsEntry{appliedBy(teamManager, update, `{"f:metadata":{"f:labels":{"f:tiers":{}}}}`)}, want: unowned},
		"an annotation with the name of the label": {value: "a", fields: []metav1.ManagedFieldsEntry{appliedBy(teamManager, update, `{"f:metadata":{"f:annotations":{"f:tier":{}}}}`)}, want: unowned},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			live := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Labels:        map[string]string{"tier": test.value},
				Annotations:   map[string]string{"note": test.value, v1alpha1.AnnotationSelectedTemplates: test.selected},
				ManagedFields: test.fields,
			}}
			recorded := template.ObjectState{Kind: template.KindLabel, Name: "tier", Fields: template.HashOf("a")}
			if test.kind == "Annotation" {
				recorded.Kind, recorded.Name = template.KindAnnotation, "note"
			}
			tmpl := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
			NewWithT(t).Expect(checkMetadataMark(tmpl, recorded, live)).To(Equal(test.want))
		})
	}
}
