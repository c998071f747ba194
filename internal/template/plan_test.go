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

func TestDecide(t *testing.T) {
	recorded := recordedConfigMap("config")
	current := observed{uid: objectUID, template: "a", namespaceUID: namespaceUID, fields: "fields"}
	with := func(change func(*observed)) *observed {
		changed := current
		change(&changed)
		return &changed
	}
	tests := map[string]struct {
		content  string
		recorded *ObjectState
		current  *observed
		want     Action
	}{
		"as recorded":                 {"content", &recorded, &current, actionNone},
		"new":                         {"content", nil, nil, ActionCreate},
		"new, object of a user":       {"content", nil, with(func(o *observed) { o.fields = "" }), ActionCreate},
		"new, recreated Namespace":    {"content", nil, with(func(o *observed) { o.namespaceUID = "other" }), ActionCreate},
		"applied but not recorded":    {"content", nil, &current, ActionUpdate},
		"moved from another template": {"content", nil, with(func(o *observed) { o.template = "b" }), ActionUpdate},
		"changed manifest":            {"other", &recorded, &current, ActionUpdate},
		"changed manifest, deleted":   {"other", &recorded, nil, ActionUpdate},
		"changed by another client":   {"content", &recorded, with(func(o *observed) { o.fields = "other" }), ActionRestore},
		"deleted":                     {"content", &recorded, nil, ActionRestore},
		"recreated":                   {"content", &recorded, with(func(o *observed) { o.uid = "other" }), ActionRestore},
		"terminating":                 {"other", &recorded, with(func(o *observed) { o.isTerminating = true }), actionWait},
		"terminating, not recorded":   {"content", nil, with(func(o *observed) { o.isTerminating = true }), actionWait},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(decide(namespaceUID, wantConfigMap("config", test.content), test.recorded, test.current)).To(Equal(test.want))
		})
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

func TestMayDelete(t *testing.T) {
	recorded := recordedConfigMap("config")
	adopted := recorded
	adopted.IsAdopted = true
	tests := map[string]struct {
		recorded ObjectState
		current  *observed
		want     bool
	}{
		"created":         {recorded, &observed{uid: objectUID, template: "a"}, true},
		"adopted":         {adopted, &observed{uid: objectUID, template: "a"}, false},
		"recreated":       {recorded, &observed{uid: "other", template: "a"}, false},
		"other template":  {recorded, &observed{uid: objectUID, template: "b"}, false},
		"without a label": {recorded, &observed{uid: objectUID}, false},
		"deleted":         {recorded, nil, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(mayDelete("a", test.recorded, test.current)).To(Equal(test.want))
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
