// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

func TestCopyOf(t *testing.T) {
	g := NewWithT(t)
	source := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": map[string]any{"key": "dmFsdWU="}, "immutable": true,
		"metadata": map[string]any{
			"name": "source", "namespace": "origin", "uid": "uid", "resourceVersion": "1", "finalizers": []any{"x"},
			"labels": map[string]any{"a": "b"}, "annotations": map[string]any{"c": "d"}, "ownerReferences": []any{},
		},
	}}
	metadata := map[string]any{"name": "source", "namespace": "ns", "labels": map[string]any{"e": "f"}}
	manifest, err := copyOf(copiedFields(source), metadata)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(manifest.Object).To(Equal(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": map[string]any{"key": "dmFsdWU="},
		"metadata": metadata,
	}))
	source.Object["type"] = "kubernetes.io/service-account-token"
	_, err = copyOf(copiedFields(source), metadata)
	g.Expect(template.ToProblem("", "", err).Reason).To(Equal(v1alpha1.ReasonInvalidObject))
}

func TestStripSource(t *testing.T) {
	source := func(change func(object *unstructured.Unstructured)) *unstructured.Unstructured {
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": map[string]any{"key": "dmFsdWU="},
			"metadata": map[string]any{"name": "source", "namespace": "sources", "uid": "uid", "resourceVersion": "1"},
		}}
		change(object)
		return object
	}
	stripped := func(object *unstructured.Unstructured) *unstructured.Unstructured {
		result, err := stripSource(object)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		return result.(*unstructured.Unstructured)
	}
	before := stripped(source(func(*unstructured.Unstructured) {}))
	for name, test := range map[string]struct {
		change    func(object *unstructured.Unstructured)
		isChanged bool
	}{
		"another resource version": {change: func(o *unstructured.Unstructured) { o.SetResourceVersion("2") }},
		"a label":                  {change: func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"a": "b"}) }},
		"an annotation": {change: func(o *unstructured.Unstructured) {
			o.SetAnnotations(map[string]string{annotationContentID: "forged"})
		}},
		"immutable":    {change: func(o *unstructured.Unstructured) { o.Object["immutable"] = true }},
		"another UID":  {isChanged: true, change: func(o *unstructured.Unstructured) { o.SetUID("other") }},
		"another type": {isChanged: true, change: func(o *unstructured.Unstructured) { o.Object["type"] = "other" }},
		"other data":   {isChanged: true, change: func(o *unstructured.Unstructured) { o.Object["data"] = map[string]any{} }},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			after := stripped(source(test.change))
			matcher := Equal(contentID(before))
			if test.isChanged {
				matcher = Not(matcher)
			}
			g.Expect(contentID(after)).To(matcher)
			g.Expect(after.GetLabels()).To(BeEmpty())
			g.Expect(after.GetNamespace() + "/" + after.GetName()).To(Equal("sources/source"))
			g.Expect(after.Object).To(HaveKey("data"))
		})
	}
}
