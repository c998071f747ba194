// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0
package template

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// namespaceWith returns a Namespace with a resource version and the recorded templates.
func namespaceWith(resourceVersion, templates string) *corev1.Namespace {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "ns", UID: namespaceUID, ResourceVersion: resourceVersion,
	}}
	if templates != "" {
		namespace.Annotations = map[string]string{v1alpha1.AnnotationTemplates: templates}
	}
	return namespace
}

func TestParseState(t *testing.T) {
	g := NewWithT(t)
	state := State{"a": {Revision: "1", Objects: []ObjectState{recordedConfigMap("config")}}, "b": {Revision: "2"}}
	parsed, err := ParseState(namespaceWith("1", state.String()))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(parsed).To(Equal(state))
	g.Expect(parsed["a"].find(keyOf(wantConfigMap("config", "").manifest))).To(HaveField("UID", BeEquivalentTo(objectUID)))
	g.Expect(parsed["a"].find(keyOf(wantConfigMap("other", "").manifest))).To(BeNil())
	g.Expect(State{}.String()).To(BeEmpty())
	_, err = ParseState(namespaceWith("1", "{"))
	g.Expect(err).To(MatchError(ContainSubstring(`namespace "ns"`)))
}

func TestStates(t *testing.T) {
	tests := map[string]struct {
		set, resourceVersion string
		namespace            *corev1.Namespace
		want                 string
		isStale              bool
	}{
		"unknown":                      {namespace: namespaceWith("5", `{"a":{"revision":"1"}}`), want: "1"},
		"not recorded":                 {set: "2", namespace: namespaceWith("5", `{"a":{"revision":"1"}}`), want: "2"},
		"recorded, stale cache":        {"2", "6", namespaceWith("5", `{"a":{"revision":"1"}}`), "2", true},
		"recorded":                     {"2", "6", namespaceWith("6", `{"a":{"revision":"2"}}`), "2", false},
		"recorded, and changed since":  {"2", "6", namespaceWith("7", `{"a":{"revision":"3"}}`), "3", false},
		"recorded, longer than cached": {"2", "10", namespaceWith("9", ""), "2", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var s states
			if test.set != "" {
				s.set(namespaceUID, State{"a": {Revision: test.set}}, test.resourceVersion)
			}
			g.Expect(s.isStale(test.namespace)).To(Equal(test.isStale))
			state, err := s.get(test.namespace)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(state["a"].Revision).To(Equal(test.want))
			other := test.namespace.DeepCopy()
			other.UID, other.Annotations = "recreated", nil
			state, err = s.get(other)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(state).To(BeEmpty())
		})
	}
}

func TestRevision(t *testing.T) {
	base := v1alpha1.NamespaceTemplateSpec{
		ServiceAccountName: "a", Parameters: []v1alpha1.TemplateParameter{{Name: "size", Description: "x"}},
		Objects: []v1alpha1.TemplateObject{{Name: "config", Template: &runtime.RawExtension{Raw: []byte(`{"a":1}`)}}},
	}
	tests := map[string]struct {
		change    func(*v1alpha1.NamespaceTemplateSpec)
		isChanged bool
	}{
		"nothing":                  {func(*v1alpha1.NamespaceTemplateSpec) {}, false},
		"a description":            {func(s *v1alpha1.NamespaceTemplateSpec) { s.Parameters[0].Description = "y" }, false},
		"the ServiceAccount":       {func(s *v1alpha1.NamespaceTemplateSpec) { s.ServiceAccountName = "b" }, false},
		"the removal":              {func(s *v1alpha1.NamespaceTemplateSpec) { s.Removal.OnDelete = v1alpha1.RemovalPrune }, false},
		"a default":                {func(s *v1alpha1.NamespaceTemplateSpec) { s.Parameters[0].Default = ptr.To("l") }, true},
		"an object":                {func(s *v1alpha1.NamespaceTemplateSpec) { s.Objects[0].Template.Raw = []byte(`{"a":2}`) }, true},
		"the lock":                 {func(s *v1alpha1.NamespaceTemplateSpec) { s.Objects[0].Locked = true }, true},
		"a variable":               {func(s *v1alpha1.NamespaceTemplateSpec) { s.Variables = []v1alpha1.TemplateVariable{{Name: "v"}} }, true},
		"a condition of an object": {func(s *v1alpha1.NamespaceTemplateSpec) { s.Objects[0].IncludeWhen = "true" }, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			changed := base.DeepCopy()
			test.change(changed)
			matcher := Equal(Revision(&base))
			if test.isChanged {
				matcher = Not(matcher)
			}
			g.Expect(Revision(changed)).To(matcher)
			g.Expect(base.Parameters[0].Description).To(Equal("x"))
		})
	}
}

func TestApplicable(t *testing.T) {
	const label = "kind"
	created := metav1.Now()
	selected := func(name string, isExisting bool) v1alpha1.NamespaceTemplate {
		return v1alpha1.NamespaceTemplate{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: created},
			Spec: v1alpha1.NamespaceTemplateSpec{ExistingNamespaces: isExisting, NamespaceSelector: &v1alpha1.NamespaceSelector{
				MatchLabels: map[string]v1alpha1.LabelValue{label: "team"},
			}},
		}
	}
	named := v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "named"}}
	deleted := selected("deleted", true)
	deleted.DeletionTimestamp = ptr.To(metav1.Now())
	skipped := func(reason string, sinceCreation time.Duration) *corev1.NamespaceCondition {
		return &corev1.NamespaceCondition{
			Type: v1alpha1.TemplatesInitializer + v1alpha1.ConditionInitializedSuffix, Reason: reason,
			LastTransitionTime: metav1.NewTime(created.Add(sinceCreation)),
		}
	}
	templates := []v1alpha1.NamespaceTemplate{named, selected("new", false), deleted, selected("existing", true)}
	for i := range v1alpha1.MaxSetTemplates + 1 { // With "named", "new" and "existing", all but "omitted" fit into the set.
		if i >= len(templates) {
			templates = append(templates, v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("other-%d", i)}})
		}
	}
	omitted := selected("omitted", true)
	omitted.CreationTimestamp = metav1.NewTime(created.Add(time.Second))
	templates = append(templates, omitted)
	tests := map[string]struct {
		labels map[string]string
		// created are the templates that selected the Namespace when it was created.
		created string
		pending string
		state   State
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
		"open":                           {labels: map[string]string{label: "team"}, want: []string{"existing"}},
		"open, recorded":                 {labels: map[string]string{label: "team"}, state: State{"new": {}}, want: []string{"existing", "new"}},
		"open, relabelled":               {labels: map[string]string{label: "other"}, state: State{"new": {}, "deleted": {}}},
		"open, recorded before there were too many templates": {
			labels: map[string]string{label: "team"}, state: State{"omitted": {}}, want: []string{"existing", "omitted"},
		},
		"open, by name": {labels: map[string]string{v1alpha1.LabelTemplate: "named"}},
		"not selected":  {pending: v1alpha1.TemplatesInitializer},
		"open after a timeout": {
			labels: map[string]string{label: "team"}, created: "existing,new", skipped: skipped(v1alpha1.ReasonTimedOut, 0),
			want: []string{"existing", "new"},
		},
		"open after a timeout, labelled later": {
			labels: map[string]string{label: "team"}, created: "existing", skipped: skipped(v1alpha1.ReasonTimedOut, 0),
			want: []string{"existing"},
		},
		"open after a timeout, before the template was created": {
			labels: map[string]string{label: "team"}, created: "existing,new", skipped: skipped(v1alpha1.ReasonTimedOut, -time.Second),
			want: []string{"existing"},
		},
		"open after a deregistration": {
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
			applier := &Applier{Programs: &Programs{}}
			for _, template := range applier.applicable(templates, namespace, test.state) {
				names = append(names, template.Name)
			}
			NewWithT(t).Expect(names).To(Equal(test.want))
		})
	}
}
