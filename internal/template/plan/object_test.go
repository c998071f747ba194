// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const (
	namespaceUID = "namespace-uid"
	objectUID    = "object-uid"
)

var configMaps = corev1.SchemeGroupVersion.WithKind("ConfigMap")

func wantConfigMap(name, content string) *Object {
	manifest := &unstructured.Unstructured{}
	manifest.SetGroupVersionKind(configMaps)
	manifest.SetName(name)
	manifest.SetNamespace("ns")
	return &Object{Name: name, Manifest: manifest, Content: content}
}

// newPass returns a pass over an initialized Namespace.
func newPass(state template.State) *Pass {
	return NewPass(&Memory{}, wrappers.MakeNamespace("ns").UID(namespaceUID).Obj(), state, time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))
}

func recordedConfigMap(name string) template.ObjectState {
	return template.ObjectState{
		Kind: configMaps.GroupKind(), Name: name, UID: objectUID, Content: "content", Fields: "fields",
	}
}

func TestUnneeded(t *testing.T) {
	one, two := recordedConfigMap("one"), recordedConfigMap("two")
	recorded := template.Entry{Objects: []template.ObjectState{one, two}}
	otherVersion := wantConfigMap("two", "")
	otherVersion.Manifest.SetAPIVersion("v2")
	otherGroup := wantConfigMap("two", "")
	otherGroup.Manifest.SetAPIVersion("test.example.com/v1")
	tests := map[string]struct {
		want []*Object
		// claimed is an object of another template.
		claimed string
		result  []template.ObjectState
	}{
		"all wanted":          {want: []*Object{wantConfigMap("one", ""), wantConfigMap("two", "")}},
		"one wanted":          {want: []*Object{wantConfigMap("one", "")}, result: []template.ObjectState{two}},
		"none wanted":         {result: []template.ObjectState{one, two}},
		"claimed":             {want: []*Object{wantConfigMap("one", "")}, claimed: "two"},
		"another API version": {want: []*Object{wantConfigMap("one", ""), otherVersion}},
		"another API group":   {want: []*Object{wantConfigMap("one", ""), otherGroup}, result: []template.ObjectState{two}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPass(nil)
			p.claims[wantConfigMap(test.claimed, "").Key()] = &Selected{}
			NewWithT(t).Expect(p.unneeded(recorded, test.want)).To(Equal(test.result))
		})
	}
}

func TestHasApplied(t *testing.T) {
	object := func(name, content string, applied *template.ObjectState) *Object {
		contained := wantConfigMap(name, content)
		contained.Recorded = applied
		return contained
	}
	one, two := recordedConfigMap("one"), recordedConfigMap("two")
	earlier := two
	earlier.Content = "earlier"
	first := object("one", "content", &one)
	tests := map[string]struct {
		objects []*Object
		result  bool
	}{
		"all":                               {[]*Object{first, object("two", "content", &two)}, true},
		"one not applied":                   {[]*Object{first, object("two", "content", nil)}, false},
		"one with earlier content":          {[]*Object{first, object("two", "content", &earlier)}, false},
		"one with unknown content":          {[]*Object{first, object("two", "", &two)}, false},
		"one that another template applies": {[]*Object{first, object("elsewhere", "content", nil)}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p, selected := newPass(nil), &Selected{Objects: test.objects}
			for _, object := range test.objects {
				p.claims[object.Key()] = selected
			}
			p.claims[wantConfigMap("elsewhere", "").Key()] = &Selected{}
			NewWithT(t).Expect(p.hasApplied(selected)).To(Equal(test.result))
		})
	}
}
