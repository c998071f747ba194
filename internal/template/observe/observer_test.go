// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

const (
	namespaceUID = "namespace-uid"
	objectUID    = "object-uid"
)

// namespaceWith returns a Namespace with a resource version and the recorded templates.
func namespaceWith(resourceVersion, templates string) *corev1.Namespace {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "ns", UID: namespaceUID, ResourceVersion: resourceVersion,
	}}
	if templates != "" {
		namespace.Annotations = map[string]string{v1alpha1.AnnotationAppliedTemplates: templates}
	}
	return namespace
}

func TestApplicable(t *testing.T) {
	const label = "kind"
	created := metav1.Now()
	selected := func(name string, scope v1alpha1.TemplateScope) v1alpha1.NamespaceTemplate {
		return v1alpha1.NamespaceTemplate{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: created},
			Spec: v1alpha1.NamespaceTemplateSpec{Scope: scope, NamespaceSelector: &v1alpha1.NamespaceSelector{
				MatchLabels: map[string]v1alpha1.LabelValue{label: "team"},
			}},
		}
	}
	named := v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "named"}}
	deleted := selected("deleted", v1alpha1.ScopeAllNamespaces)
	deleted.DeletionTimestamp = ptr.To(metav1.Now())
	skipped := func(reason string, sinceCreation time.Duration) *corev1.NamespaceCondition {
		return &corev1.NamespaceCondition{
			Type: v1alpha1.TemplatesInitializer + v1alpha1.ConditionInitializedSuffix, Reason: reason,
			LastTransitionTime: metav1.NewTime(created.Add(sinceCreation)),
		}
	}
	templates := []v1alpha1.NamespaceTemplate{named, selected("new", v1alpha1.ScopeNewNamespaces), deleted, selected("existing", v1alpha1.ScopeAllNamespaces)}
	for i := range internalv1alpha1.MaxTemplates + 1 { // With "named", "new" and "existing", all but "omitted" fit into the set.
		if i >= len(templates) {
			templates = append(templates, v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("other-%d", i)}})
		}
	}
	omitted := selected("omitted", v1alpha1.ScopeAllNamespaces)
	omitted.CreationTimestamp = metav1.NewTime(created.Add(time.Second))
	templates = append(templates, omitted)
	tests := map[string]struct {
		labels map[string]string
		// created are the templates that selected the Namespace when it was created.
		created string
		pending string
		state   template.Record
		skipped *corev1.NamespaceCondition
		want    []string
	}{
		"initializing": {
			labels: map[string]string{label: "team"}, created: "existing,new", pending: v1alpha1.TemplatesInitializer,
			want: []string{"existing", "new"},
		},
		"initializing, by name": {
			labels: map[string]string{v1alpha1.LabelTemplate: "named"}, created: "named", pending: v1alpha1.TemplatesInitializer,
			want: []string{"named"},
		},
		"initializing, labelled later or before the templates were created": {
			labels:  map[string]string{label: "team", v1alpha1.LabelTemplate: "named"},
			created: "new,other-3", pending: v1alpha1.TemplatesInitializer, want: []string{"new"},
		},
		"initializing, without a record": {
			labels: map[string]string{label: "team", v1alpha1.LabelTemplate: "named"}, pending: v1alpha1.TemplatesInitializer,
		},
		"initializing, relabelled": {
			labels: map[string]string{label: "other"}, created: "existing,new", pending: v1alpha1.TemplatesInitializer,
		},
		"other initializers are pending": {labels: map[string]string{label: "team"}, pending: "other.example.com", want: []string{"existing"}},
		"initialized":                    {labels: map[string]string{label: "team"}, want: []string{"existing"}},
		"initialized, recorded":          {labels: map[string]string{label: "team"}, state: template.Record{"new": {}}, want: []string{"existing", "new"}},
		"initialized, relabelled":        {labels: map[string]string{label: "other"}, state: template.Record{"new": {}, "deleted": {}}},
		"initialized, recorded before there were too many templates": {
			labels: map[string]string{label: "team"}, state: template.Record{"omitted": {}}, want: []string{"existing", "omitted"},
		},
		"initialized, by name": {labels: map[string]string{v1alpha1.LabelTemplate: "named"}},
		"not selected":         {pending: v1alpha1.TemplatesInitializer},
		"initialized after a timeout": {
			labels: map[string]string{label: "team"}, created: "existing,new", skipped: skipped(v1alpha1.ReasonTimedOut, 0),
			want: []string{"existing", "new"},
		},
		"initialized after a timeout, labelled later": {
			labels: map[string]string{label: "team"}, created: "existing", skipped: skipped(v1alpha1.ReasonTimedOut, 0),
			want: []string{"existing"},
		},
		"initialized after a timeout, before the template was created": {
			labels: map[string]string{label: "team"}, created: "existing,new", skipped: skipped(v1alpha1.ReasonTimedOut, -time.Second),
			want: []string{"existing"},
		},
		"initialized after a deregistration": {
			labels: map[string]string{label: "team"}, created: "existing,new", skipped: skipped(v1alpha1.ReasonDeregistered, 0),
			want: []string{"existing"},
		},
		"relabelled after a timeout": {labels: map[string]string{label: "other"}, skipped: skipped(v1alpha1.ReasonTimedOut, 0)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", Labels: test.labels}}
			namespace.Annotations = map[string]string{
				v1alpha1.AnnotationPendingInitializers: test.pending, v1alpha1.AnnotationSelectedTemplates: test.created,
			}
			if test.skipped != nil {
				namespace.Status.Conditions = append(namespace.Status.Conditions, *test.skipped)
			}
			var names []string
			observer := &Observer{Programs: &Programs{}}
			for _, tmpl := range observer.applicable(templates, namespace, test.state) {
				names = append(names, tmpl.Name)
			}
			NewWithT(t).Expect(names).To(Equal(test.want))
		})
	}
}
