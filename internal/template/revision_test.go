// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

func TestRevision(t *testing.T) {
	base := v1alpha1.NamespaceTemplateSpec{
		ServiceAccountName: "a", Parameters: []v1alpha1.TemplateParameter{{Name: "size", Description: "x"}},
		Objects: []v1alpha1.TemplateObject{{Name: "config", Template: &runtime.RawExtension{Raw: []byte(`{"a":1}`)}}},
	}
	tests := map[string]struct {
		change    func(*v1alpha1.NamespaceTemplateSpec)
		isChanged bool
	}{
		"nothing":            {func(*v1alpha1.NamespaceTemplateSpec) {}, false},
		"a description":      {func(s *v1alpha1.NamespaceTemplateSpec) { s.Parameters[0].Description = "y" }, false},
		"the ServiceAccount": {func(s *v1alpha1.NamespaceTemplateSpec) { s.ServiceAccountName = "b" }, false},
		"the removal": {func(s *v1alpha1.NamespaceTemplateSpec) {
			s.ObjectRetentionPolicy.WhenDeleted = v1alpha1.RetentionDelete
		}, false},
		"a default": {func(s *v1alpha1.NamespaceTemplateSpec) { s.Parameters[0].Default = ptr.To("l") }, true},
		"an object": {func(s *v1alpha1.NamespaceTemplateSpec) { s.Objects[0].Template.Raw = []byte(`{"a":2}`) }, true},
		"defaults": {func(s *v1alpha1.NamespaceTemplateSpec) {
			s.Objects[0].Lock, s.Objects[0].NamespaceState = v1alpha1.LockNone, v1alpha1.NamespaceStateInitializing
		}, false},
		"the lock": {func(s *v1alpha1.NamespaceTemplateSpec) { s.Objects[0].Lock = v1alpha1.LockAll }, true},
		"the metadata of all objects": {func(s *v1alpha1.NamespaceTemplateSpec) {
			s.ObjectMetadata = &v1alpha1.TemplateObjectMetadata{Labels: map[string]v1alpha1.ObjectMetadataValue{"a": "b"}}
		}, true},
		"a list":                   {func(s *v1alpha1.NamespaceTemplateSpec) { s.Objects[0].ForEach = "teams" }, true},
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

// A client that decodes and encodes a revision does not change a byte of it.
func TestEncodeContent(t *testing.T) {
	g := NewWithT(t)
	raw, err := EncodeContent(Content{Objects: []v1alpha1.TemplateObject{{
		Name: "config", NamespaceState: v1alpha1.NamespaceStateInitializing, Lock: v1alpha1.LockAll,
		Template: &runtime.RawExtension{Raw: []byte(`{"b":"<&>","a":9007199254740993}`)},
	}}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(raw)).To(Equal(`{"objects":[{"lock":"All","name":"config","namespaceState":"Initializing",` +
		`"template":{"a":9007199254740993,"b":"\u003c\u0026\u003e"}}]}`))
}
