// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0
package template

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

const (
	namespaceUID = "namespace-uid"
	objectUID    = "object-uid"
)

func wantConfigMap(name, content string) desired {
	manifest := identityOf(v1alpha1.TemplateCopy{APIVersion: "v1", Kind: "ConfigMap", Name: name}, "ns")
	return desired{name: name, manifest: manifest, content: content}
}

func recordedConfigMap(name string) ObjectState {
	return ObjectState{
		Name: name, APIVersion: "v1", Kind: "ConfigMap", ObjectName: name, UID: objectUID, Content: "content", Fields: "fields",
	}
}

func TestObsolete(t *testing.T) {
	one, two := recordedConfigMap("one"), recordedConfigMap("two")
	recorded := Entry{Objects: []ObjectState{one, two}}
	otherVersion := wantConfigMap("two", "")
	otherVersion.manifest.SetAPIVersion("v2")
	otherGroup := wantConfigMap("two", "")
	otherGroup.manifest.SetAPIVersion("test.example.com/v1")
	tests := map[string]struct {
		want    []desired
		claimed string
		result  []ObjectState
	}{
		"all wanted":          {want: []desired{wantConfigMap("one", ""), wantConfigMap("two", "")}},
		"one wanted":          {want: []desired{wantConfigMap("one", "")}, result: []ObjectState{two}},
		"none wanted":         {result: []ObjectState{one, two}},
		"claimed":             {want: []desired{wantConfigMap("one", "")}, claimed: "two"},
		"another API version": {want: []desired{wantConfigMap("one", ""), otherVersion}},
		"another API group":   {want: []desired{wantConfigMap("one", ""), otherGroup}, result: []ObjectState{two}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			claimed := func(key objectKey) bool { return key.name == test.claimed }
			g.Expect(obsolete(recorded, test.want, claimed)).To(Equal(test.result))
		})
	}
}

func TestHasApplied(t *testing.T) {
	one, two := wantConfigMap("one", "content"), wantConfigMap("two", "content")
	with := func(change func(*ObjectState)) ObjectState {
		changed := recordedConfigMap("two")
		change(&changed)
		return changed
	}
	applied := []ObjectState{recordedConfigMap("one")}
	tests := map[string]struct {
		want    []desired
		applied []ObjectState
		result  bool
	}{
		"all":                         {[]desired{one}, applied, true},
		"another object also remains": {[]desired{one}, append(applied, recordedConfigMap("two")), true},
		"one not applied":             {[]desired{one, two}, applied, false},
		"one with earlier content": {
			[]desired{one, two}, append(applied, with(func(o *ObjectState) { o.Content = "earlier" })), false,
		},
		"one with unknown content": {
			[]desired{one, wantConfigMap("two", "")}, append(applied, with(func(*ObjectState) {})), false,
		},
		"one that another template applies": {[]desired{one, wantConfigMap("elsewhere", "content")}, applied, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			isElsewhere := func(key objectKey) bool { return key.name == "elsewhere" }
			NewWithT(t).Expect(hasApplied(test.want, test.applied, isElsewhere)).To(Equal(test.result))
		})
	}
}

func TestCopyOf(t *testing.T) {
	g := NewWithT(t)
	source := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": map[string]any{"key": "dmFsdWU="}, "immutable": true,
		"metadata": map[string]any{
			"name": "source", "namespace": "origin", "uid": "uid", "resourceVersion": "1", "finalizers": []any{"x"},
			"labels": map[string]any{"a": "b"}, "annotations": map[string]any{"c": "d"}, "ownerReferences": []any{},
		},
	}}
	manifest, err := copyOf(copiedFields(source), "ns")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(manifest.Object).To(Equal(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": map[string]any{"key": "dmFsdWU="},
		"metadata": map[string]any{"name": "source", "namespace": "ns"},
	}))
	source.Object["type"] = "kubernetes.io/service-account-token"
	_, err = copyOf(copiedFields(source), "ns")
	g.Expect(toProblem("", "", err).Reason).To(Equal(ReasonInvalidObject))
}
