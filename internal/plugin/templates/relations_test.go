// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

func TestComputeRelations(t *testing.T) {
	forbidden := v1alpha1.TemplateFailure{
		Namespace: "shop", Object: "quota", Reason: v1alpha1.ReasonForbidden, Message: "no permission",
	}
	elsewhere := v1alpha1.TemplateFailure{Namespace: "other", Reason: v1alpha1.ReasonForbidden, Message: "no permission"}
	selected, updated := template.Match{Result: template.MatchSelected}, template.Record{"team": {Revision: "b"}}
	failing := func(name string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: name, Status: status, Reason: reason, Message: message}
	}
	for name, test := range map[string]struct {
		state  template.Record
		status v1alpha1.NamespaceTemplateStatus
		want   Relation
	}{
		"current": {state: updated, want: Relation{Revision: "b"}},
		"outdated": {
			state: template.Record{"team": {Revision: "a", Target: "b"}},
			want:  Relation{Revision: "a", Target: "b", IsOutdated: true},
		},
		"failure": {
			state: updated, status: v1alpha1.NamespaceTemplateStatus{Failures: []v1alpha1.TemplateFailure{elsewhere, forbidden}},
			want: Relation{Revision: "b", Failures: []v1alpha1.TemplateFailure{forbidden}},
		},
		"failures that the status omits": {
			state: updated, status: v1alpha1.NamespaceTemplateStatus{
				Failures: []v1alpha1.TemplateFailure{elsewhere}, Namespaces: &v1alpha1.TemplateNamespaceCounts{Failed: 2},
			},
			want: Relation{Revision: "b", IsUnknown: true,
				Note: "The template fails in more namespaces than its status lists: see the Events of the namespace."},
		},
		"failures that the status lists, sorted by namespace": {
			state: updated, status: v1alpha1.NamespaceTemplateStatus{
				Failures:   []v1alpha1.TemplateFailure{elsewhere, {Namespace: "shops"}},
				Namespaces: &v1alpha1.TemplateNamespaceCounts{Failed: 3},
			},
			want: Relation{Revision: "b"},
		},
		"unauthorized": {
			state: updated, status: v1alpha1.NamespaceTemplateStatus{Conditions: []metav1.Condition{
				failing(v1alpha1.ConditionAuthorized, metav1.ConditionFalse, v1alpha1.ReasonUnauthorized, "Rules are missing:\nrules: []"),
			}},
			want: Relation{Revision: "b", Note: "Unauthorized: Rules are missing:"},
		},
		"unauthorized, and not applied": {
			state: template.Record{"team": {Target: "b"}}, status: v1alpha1.NamespaceTemplateStatus{Conditions: []metav1.Condition{
				failing(v1alpha1.ConditionAuthorized, metav1.ConditionFalse, v1alpha1.ReasonUnauthorized, "Rules are missing:\nrules: []"),
			}},
			want: Relation{Target: "b", IsOutdated: true, Problem: "Unauthorized: Rules are missing:"},
		},
		"invalid, and not applied completely": {
			state: template.Record{"team": {Revision: "a", Target: "b"}}, status: v1alpha1.NamespaceTemplateStatus{Conditions: []metav1.Condition{
				failing(v1alpha1.ConditionValid, metav1.ConditionFalse, v1alpha1.ReasonInvalid, "x"),
			}},
			want: Relation{Revision: "a", Target: "b", IsOutdated: true, Problem: "Invalid: x"},
		},
		"paused": {
			state: template.Record{"team": {Revision: "a"}}, status: v1alpha1.NamespaceTemplateStatus{Conditions: []metav1.Condition{
				failing(v1alpha1.ConditionProgressing, metav1.ConditionUnknown, v1alpha1.ReasonPaused, "The rollout is paused."),
			}},
			want: Relation{Revision: "a", IsOutdated: true, Note: "The rollout is paused."},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			object := newTemplate(g, func(*v1alpha1.NamespaceTemplateSpec) {}).NamespaceTemplate
			object.Status = test.status
			object.Status.UpdateRevision = "b"
			if len(object.Status.Conditions) == 0 {
				object.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionValid, Status: metav1.ConditionTrue}}
			}
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: "shop", Labels: map[string]string{"team": "a"},
				Annotations: map[string]string{v1alpha1.AnnotationAppliedTemplates: test.state.String()},
			}}
			test.want.Template, test.want.Match, test.want.UpdateRevision = "team", &selected, "b"
			g.Expect(ComputeRelations([]v1alpha1.NamespaceTemplate{*object}, namespace)).To(Equal([]Relation{test.want}))
		})
	}
}

func TestComputeRelationsWithoutTemplates(t *testing.T) {
	g := NewWithT(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Annotations: map[string]string{
		v1alpha1.AnnotationAppliedTemplates: template.Record{"b": {Revision: "1"}, "a": {Target: "2"}}.String(),
	}}}
	g.Expect(ComputeRelations(nil, namespace)).To(Equal([]Relation{{Template: "a", Target: "2"}, {Template: "b", Revision: "1"}}))

	namespace.Annotations[v1alpha1.AnnotationAppliedTemplates] = "{"
	namespace.Labels = map[string]string{"team": "a"}
	object := newTemplate(g, func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Scope = v1alpha1.ScopeAllNamespaces })
	relations := ComputeRelations([]v1alpha1.NamespaceTemplate{*object.NamespaceTemplate}, namespace)
	g.Expect(relations[0].Problem).To(ContainSubstring("failed to parse annotation"))
}

func TestUnusedSettings(t *testing.T) {
	g := NewWithT(t)
	object := newTemplate(g, func(spec *v1alpha1.NamespaceTemplateSpec) {
		spec.Scope = v1alpha1.ScopeAllNamespaces
		spec.Parameters = []v1alpha1.TemplateParameter{{Name: "size"}, {Name: "tier", LabelKey: "tier"}}
	})
	all := []v1alpha1.NamespaceTemplate{*object.NamespaceTemplate}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Labels: map[string]string{"team": "a", v1alpha1.LabelTemplate: "team"},
		Annotations: map[string]string{
			v1alpha1.PrefixParameter + "size": "s", v1alpha1.PrefixParameter + "sise": "s", v1alpha1.PrefixParameter + "tier": "x", "other": "",
		},
	}}
	g.Expect(UnusedSettings(all, namespace, ComputeRelations(all, namespace))).To(Equal([]string{
		"Annotation parameter.nslifecycle.dev/sise: no template that is applied has this parameter.",
		"Annotation parameter.nslifecycle.dev/tier: no template that is applied has this parameter.",
	}))
	namespace.Labels[v1alpha1.LabelTemplate], namespace.Labels["team"] = "deleted", "b"
	g.Expect(UnusedSettings(all, namespace, ComputeRelations(all, namespace))).To(ConsistOf(
		`Label nslifecycle.dev/template: NamespaceTemplate "deleted" does not exist.`,
		ContainSubstring("/sise"), ContainSubstring("/size"), ContainSubstring("/tier")))
}
