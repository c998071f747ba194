// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

var settingsKey = template.ObjectKey{Kind: schema.GroupKind{Kind: "ConfigMap"}, Name: "settings"}

// The objects of the templates in this file.
const (
	settings = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"settings"},"data":{"mode":"old"}}`
	changed  = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"settings"},"data":{"mode":"new"}}`
	notes    = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"notes"}}`
)

func TestCompare(t *testing.T) {
	for name, test := range map[string]struct {
		// change changes the template, which contains settings and a copy.
		change func(spec *v1alpha1.NamespaceTemplateSpec)
		// prepare changes the Namespace after the template was applied.
		prepare func(namespace *corev1.Namespace)
		// isNew compares a template that the Namespace does not record.
		isNew bool
		// isDeleted compares a template that is being deleted.
		isDeleted  bool
		want       Change
		objects    map[Change]int
		existing   int
		unselected int
		message    string
	}{
		"no change": {want: Unchanged, objects: map[Change]int{Unchanged: 2}},
		"changed field": {
			change: setObject(0, changed), want: Changed, objects: map[Change]int{Unchanged: 1, Changed: 1},
		},
		"lock": {
			change: func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Objects[0].Lock = v1alpha1.LockAll },
			want:   Changed, objects: map[Change]int{Unchanged: 1, Changed: 1},
		},
		"object of another name": {
			change: setObject(0, notes), want: Changed, objects: map[Change]int{Unchanged: 1, Created: 1, Deleted: 1},
		},
		"removed objects are kept": {
			change: func(spec *v1alpha1.NamespaceTemplateSpec) {
				spec.Objects = spec.Objects[1:]
				spec.ObjectRetentionPolicy.WhenRemoved = v1alpha1.RetentionRetain
			},
			want: Unchanged, objects: map[Change]int{Unchanged: 1},
		},
		"a template without objects deletes nothing": {
			change: func(spec *v1alpha1.NamespaceTemplateSpec) {
				spec.Objects[0].IncludeWhen, spec.Objects[1].IncludeWhen = "false", "false"
			},
			want: Unchanged,
		},
		"adopted objects are kept": {
			change: func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Objects = spec.Objects[1:] },
			prepare: record(func(state *template.Entry) {
				for i := range state.Objects {
					state.Objects[i].IsAdopted = true
				}
			}),
			want: Unchanged, objects: map[Change]int{Unchanged: 1},
		},
		"label": {change: setZone, want: Changed, objects: map[Change]int{Unchanged: 2, Created: 1}},
		"label with the same value": {
			change:  setZone,
			prepare: func(namespace *corev1.Namespace) { metav1.SetMetaDataLabel(&namespace.ObjectMeta, "zone", "a") },
			want:    Unchanged, objects: map[Change]int{Unchanged: 3},
		},
		"label with another value": {
			change:  setZone,
			prepare: func(namespace *corev1.Namespace) { metav1.SetMetaDataLabel(&namespace.ObjectMeta, "zone", "b") },
			want:    Failed, objects: map[Change]int{Unchanged: 2, Failed: 1},
		},
		"recorded label": {
			change: setZone,
			prepare: func(namespace *corev1.Namespace) {
				metav1.SetMetaDataLabel(&namespace.ObjectMeta, "zone", "b")
				recordZone(namespace)
			},
			want: Changed, objects: map[Change]int{Unchanged: 2, Changed: 1},
		},
		"recorded label that the template does not set": {
			change: func(*v1alpha1.NamespaceTemplateSpec) {}, prepare: recordZone,
			want: Changed, objects: map[Change]int{Unchanged: 2, Deleted: 1},
		},
		"copy of another source": {
			change: func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Objects[1].SourceRef.Name = "other" },
			want:   Changed, objects: map[Change]int{Unchanged: 1, Created: 1, Deleted: 1},
		},
		"changed source of a copy": {
			prepare: record(func(state *template.Entry) {
				for i := range state.Objects {
					if state.Objects[i].Kind.Kind == "Secret" {
						state.Objects[i].Content = "older"
					}
				}
			}),
			want: Unchanged, objects: map[Change]int{Unchanged: 2},
		},
		"256 objects": {prepare: recordEarlier(template.MaxObjects - 2), want: Unchanged, objects: map[Change]int{Unchanged: 2}},
		"more than 256 objects": {
			prepare: recordEarlier(template.MaxObjects - 1), want: Failed, message: "more than 256 objects",
		},
		"object that moves to another template": {
			change: func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Objects = spec.Objects[1:] },
			prepare: func(namespace *corev1.Namespace) {
				state, _ := template.ParseRecord(namespace)
				state["other"] = template.Entry{Objects: []template.ObjectState{*state["team"].Find(settingsKey)}}
				namespace.Annotations[v1alpha1.AnnotationAppliedTemplates] = state.String()
			},
			want: Unchanged, objects: map[Change]int{Unchanged: 1},
		},
		"applied once": {
			change: func(spec *v1alpha1.NamespaceTemplateSpec) {
				spec.Objects[0].Template.Raw = []byte(changed)
				spec.Sync.Mode = v1alpha1.SyncOnce
			},
			want: Unchanged, objects: map[Change]int{Unchanged: 2},
		},
		"deleted template": {
			change: func(spec *v1alpha1.NamespaceTemplateSpec) {
				spec.ObjectRetentionPolicy.WhenDeleted = v1alpha1.RetentionDelete
			},
			isDeleted: true, want: Deleted, objects: map[Change]int{Deleted: 2},
		},
		"no longer selected": {
			change: func(spec *v1alpha1.NamespaceTemplateSpec) { spec.NamespaceSelector = nil }, unselected: 1,
		},
		"no longer selected, and deleted": {
			change: func(spec *v1alpha1.NamespaceTemplateSpec) {
				spec.NamespaceSelector = nil
				spec.ObjectRetentionPolicy.WhenDeselected = v1alpha1.RetentionDelete
			},
			want: Deleted, objects: map[Change]int{Deleted: 2},
		},
		"expression that fails": {
			change: func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Objects[0].IncludeWhen = "ns.labels['missing'] == ''" },
			want:   Failed, message: "includeWhen",
		},
		"another template contains the object": {
			change: func(spec *v1alpha1.NamespaceTemplateSpec) {
				spec.Objects = append(spec.Objects, newObject("notes", notes))
			},
			prepare: func(namespace *corev1.Namespace) {
				state, _ := template.ParseRecord(namespace)
				state["other"] = template.Entry{Objects: []template.ObjectState{
					{Kind: schema.GroupKind{Kind: "ConfigMap"}, Name: "notes", UID: "uid"},
				}}
				namespace.Annotations[v1alpha1.AnnotationAppliedTemplates] = state.String()
			},
			want: Failed, objects: map[Change]int{Unchanged: 2, Failed: 1},
		},
		"invalid state": {
			prepare: func(namespace *corev1.Namespace) { namespace.Annotations[v1alpha1.AnnotationAppliedTemplates] = "{" },
			want:    Failed, message: "invalid state",
		},
		"terminating namespace": {
			change:  setObject(0, changed),
			prepare: func(namespace *corev1.Namespace) { namespace.DeletionTimestamp = &metav1.Time{Time: time.Now()} },
		},
		"new template": {isNew: true, existing: 1},
		"new template for existing namespaces": {
			isNew:  true,
			change: func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Scope = v1alpha1.ScopeAllNamespaces },
			want:   Created, objects: map[Change]int{Created: 2},
		},
		"initializing namespace": {
			isNew: true,
			change: func(spec *v1alpha1.NamespaceTemplateSpec) {
				spec.Objects[0].NamespaceState = v1alpha1.NamespaceStateInitialized
			},
			prepare: func(namespace *corev1.Namespace) {
				namespace.Labels[v1alpha1.LabelInitializing] = "true"
				namespace.Annotations = map[string]string{
					v1alpha1.AnnotationPendingInitializers: v1alpha1.TemplatesInitializer,
					v1alpha1.AnnotationInitializers:        v1alpha1.TemplatesInitializer,
					v1alpha1.AnnotationSelectedTemplates:   "team",
				}
			},
			want: Created, objects: map[Change]int{Created: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			current := newTemplate(g, func(*v1alpha1.NamespaceTemplateSpec) {})
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: "shop", UID: "shop", Labels: map[string]string{"team": "a"}, Annotations: map[string]string{},
			}}
			if !test.isNew {
				apply(t, g, current, namespace)
			}
			if test.prepare != nil {
				test.prepare(namespace)
			}
			if test.change == nil {
				test.change = func(*v1alpha1.NamespaceTemplateSpec) {}
			}
			if test.isNew {
				current = nil
			}
			changed := newTemplate(g, test.change)
			if test.isDeleted {
				changed.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			}
			result := Compare(t.Context(), changed, current, []corev1.Namespace{*namespace})
			g.Expect(nonZero(result.Objects)).To(Equal(nonZero(test.objects)))
			g.Expect(result.Existing).To(Equal(test.existing))
			g.Expect(result.Unselected).To(Equal(test.unselected))
			if test.want == "" {
				g.Expect(nonZero(result.Namespaces)).To(BeEmpty())
				return
			}
			g.Expect(nonZero(result.Namespaces)).To(Equal(map[Change]int{test.want: 1}))
			if test.message != "" {
				g.Expect(result.Items[0].Message).To(ContainSubstring(test.message))
			}
		})
	}
}

func TestCompareFields(t *testing.T) {
	g := NewWithT(t)
	before := map[string]any{"data": map[string]any{"a": "1", "b": "2"}, "list": []any{"x", map[string]any{"y": int64(1)}}, "same": true}
	after := map[string]any{"data": map[string]any{"a": "1", "c.d": "3"}, "list": []any{"x", map[string]any{"y": int64(2)}, "z"}, "same": true}
	g.Expect(compareFields("ConfigMap", before, after)).To(Equal([]FieldChange{
		{Path: "data.b", Before: `"2"`},
		{Path: "data[c.d]", After: `"3"`},
		{Path: "list[1].y", Before: "1", After: "2"},
		{Path: "list[2]", After: `"z"`},
	}))
	g.Expect(compareFields("Secret", before, after)[:2]).To(Equal([]FieldChange{
		{Path: "data.b", Before: maskedValue}, {Path: "data[c.d]", After: maskedValue},
	}))
}

// newTemplate returns a template with a ConfigMap and a copy.
func newTemplate(g Gomega, change func(spec *v1alpha1.NamespaceTemplateSpec)) *Template {
	object := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "team"}, Spec: v1alpha1.NamespaceTemplateSpec{
		NamespaceSelector: &v1alpha1.NamespaceSelector{MatchLabels: map[string]v1alpha1.LabelValue{"team": "a"}},
		Objects: []v1alpha1.TemplateObject{
			newObject("settings", settings),
			{Name: "pull-secret", SourceRef: &v1alpha1.TemplateSourceReference{Kind: "Secret", Name: "pull"}},
		},
	}}
	change(&object.Spec)
	compiled, err := Compile(object)
	g.Expect(err).NotTo(HaveOccurred())
	return compiled
}

func newObject(name, manifest string) v1alpha1.TemplateObject {
	return v1alpha1.TemplateObject{Name: name, Template: &runtime.RawExtension{Raw: []byte(manifest)}}
}

func setObject(index int, manifest string) func(*v1alpha1.NamespaceTemplateSpec) {
	return func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Objects[index].Template.Raw = []byte(manifest) }
}

func apply(t *testing.T, g Gomega, applied *Template, namespace *corev1.Namespace) {
	objects, err := applied.Render(t.Context(), namespace)
	g.Expect(err).NotTo(HaveOccurred())
	recorded := template.Entry{Revision: applied.Revision()}
	for _, object := range objects {
		manifest := object.Manifest
		recorded.Objects = append(recorded.Objects, template.ObjectState{
			Kind: manifest.GroupVersionKind().GroupKind(), Name: manifest.GetName(), UID: "uid",
			Content: template.ObjectContent(manifest, object.Locked),
		})
	}
	namespace.Annotations[v1alpha1.AnnotationAppliedTemplates] = template.Record{applied.Name: recorded}.String()
}

// recordEarlier records objects of a template whose name is earlier.
func recordEarlier(count int) func(*corev1.Namespace) {
	return func(namespace *corev1.Namespace) {
		state, _ := template.ParseRecord(namespace)
		var earlier template.Entry
		for i := range count {
			earlier.Objects = append(earlier.Objects, template.ObjectState{
				Kind: schema.GroupKind{Kind: "ConfigMap"}, Name: "config-" + strconv.Itoa(i), UID: "uid",
			})
		}
		state["earlier"] = earlier
		namespace.Annotations[v1alpha1.AnnotationAppliedTemplates] = state.String()
	}
}

// record returns a function that changes what a Namespace records.
func record(change func(*template.Entry)) func(*corev1.Namespace) {
	return func(namespace *corev1.Namespace) {
		state, _ := template.ParseRecord(namespace)
		recorded := state["team"]
		change(&recorded)
		state["team"] = recorded
		namespace.Annotations[v1alpha1.AnnotationAppliedTemplates] = state.String()
	}
}

func nonZero(counts map[Change]int) map[Change]int {
	result := map[Change]int{}
	for change, count := range counts {
		if count != 0 {
			result[change] = count
		}
	}
	return result
}

func setZone(spec *v1alpha1.NamespaceTemplateSpec) {
	spec.Metadata = &v1alpha1.TemplateMetadata{Labels: map[string]v1alpha1.TemplateMetadataValue{"zone": "a"}}
}

// recordZone makes a Namespace record a label.
func recordZone(namespace *corev1.Namespace) {
	record(func(state *template.Entry) {
		state.Objects = append(state.Objects, template.ObjectState{
			Kind: template.KindLabel, Name: "zone", UID: "shop", Content: "b", Fields: "b",
		})
	})(namespace)
}
