// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
)

func TestWithLock(t *testing.T) {
	label := ObjectState{Kind: KindLabel, Name: "zone", UID: "u", Content: "c", Fields: "f"}
	annotation := ObjectState{Kind: KindAnnotation, Name: "example.com/note", UID: "u", Content: "c", Fields: "f"}
	object := ObjectState{Kind: schema.GroupKind{Kind: "ConfigMap"}, Name: "lockedlabels", UID: "u", Content: "c", Fields: "f"}
	selector := func(operator metav1.LabelSelectorOperator, keys ...string) *v1alpha1.NamespaceSelector {
		made := &v1alpha1.NamespaceSelector{}
		for _, key := range keys {
			made.MatchExpressions = append(made.MatchExpressions, v1alpha1.NamespaceSelectorRequirement{Key: key, Operator: operator})
		}
		return made
	}
	tests := map[string]struct {
		lock                        v1alpha1.ObjectLock
		selector                    *v1alpha1.NamespaceSelector
		labels                      map[string]string
		objects                     []ObjectState
		wantLabels, wantAnnotations []string
	}{
		"not locked":   {lock: v1alpha1.LockNone, objects: []ObjectState{label, annotation}},
		"only objects": {lock: v1alpha1.LockAll, selector: selector(metav1.LabelSelectorOpExists, "a"), labels: map[string]string{"a": ""}, objects: []ObjectState{object}},
		"both":         {lock: v1alpha1.LockAll, objects: []ObjectState{annotation, label, object}, wantLabels: []string{"zone"}, wantAnnotations: []string{"example.com/note"}},
		"selected by its name": {
			lock: v1alpha1.LockAll, labels: map[string]string{v1alpha1.LabelTemplate: "t", "a": ""}, objects: []ObjectState{annotation},
			wantLabels: []string{v1alpha1.LabelTemplate}, wantAnnotations: []string{"example.com/note"},
		},
		"selected by labels": {
			lock: v1alpha1.LockAll, labels: map[string]string{v1alpha1.LabelTemplate: "other", "a": "x", "z": "y"}, objects: []ObjectState{label},
			selector: &v1alpha1.NamespaceSelector{
				MatchLabels:      map[string]v1alpha1.LabelValue{"z": "y", corev1.LabelMetadataName: "x"},
				MatchExpressions: selector(metav1.LabelSelectorOpIn, "a", "absent").MatchExpressions,
			},
			wantLabels: []string{"a", "z", "zone"},
		},
		"selected by the absence of labels": {
			lock: v1alpha1.LockAll, labels: map[string]string{"a": "x"}, objects: []ObjectState{label},
			selector: selector(metav1.LabelSelectorOpNotIn, "a"), wantLabels: []string{"zone"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t"}}
			template.Spec.Metadata = &v1alpha1.TemplateMetadata{Lock: test.lock}
			template.Spec.NamespaceSelector = test.selector
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: test.labels}}
			entry := Entry{Revision: "r", Objects: test.objects, LockedLabels: []string{"outdated"}}.WithLock(template, namespace)
			g.Expect(entry.LockedLabels).To(Equal(test.wantLabels))
			g.Expect(entry.LockedAnnotations).To(Equal(test.wantAnnotations))

			state := Record{"t": entry}
			namespace.Annotations = map[string]string{v1alpha1.AnnotationAppliedTemplates: state.String()}
			parsed, err := ParseRecord(namespace)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(parsed.String()).To(Equal(state.String()))
			labels, annotations := initialization.LockedKeys(namespace)
			g.Expect(labels).To(Equal(test.wantLabels))
			g.Expect(annotations).To(Equal(test.wantAnnotations))
		})
	}
}
