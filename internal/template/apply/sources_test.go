// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

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

func TestCheckSourceNamespace(t *testing.T) {
	source := v1alpha1.TemplateSourceReference{Kind: "Secret", Namespace: "src", Name: "pull"}
	const command = `kubectl patch nstemplate team --type=json --patch='[{"op":"test","path":"/spec/objects/1/name","value":"copy"},` +
		`{"op":"add","path":"/spec/objects/1/sourceRef/namespaceUID","value":"now"}]'`
	for name, test := range map[string]struct {
		inSpec, inStatus types.UID
		isRemoved        bool
		reason, message  string
	}{
		"not recorded yet":                 {reason: v1alpha1.ReasonWatchNotSynced},
		"recorded":                         {inStatus: "now"},
		"recreated":                        {inStatus: "old", reason: v1alpha1.ReasonSourceNamespaceReplaced, message: command},
		"accepted":                         {inSpec: "now", inStatus: "old"},
		"accepted, and not recorded":       {inSpec: "now"},
		"accepted, and recreated":          {inSpec: "old", inStatus: "old", reason: v1alpha1.ReasonSourceNamespaceReplaced, message: command},
		"the spec overrides the status":    {inSpec: "old", inStatus: "now", reason: v1alpha1.ReasonSourceNamespaceReplaced, message: command},
		"recreated, and no longer in spec": {isRemoved: true, inStatus: "old", reason: v1alpha1.ReasonSourceNamespaceReplaced, message: "no longer contains the copy"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			team := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
			accepted := source
			accepted.NamespaceUID = test.inSpec
			team.Spec.Objects = []v1alpha1.TemplateObject{{Name: "other"}, {Name: "copy", SourceRef: &accepted}}
			if test.isRemoved {
				team.Spec.Objects = team.Spec.Objects[:1]
			}
			if test.inStatus != "" {
				team.Status.SourceNamespaces = []v1alpha1.TemplateSourceNamespace{{Name: "else", UID: "x"}, {Name: "src", UID: test.inStatus}}
			}
			err := checkSourceNamespace(team, source, "now")
			if test.reason == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			found := template.ToProblem("team", "copy", err)
			g.Expect(found.Reason).To(Equal(test.reason))
			g.Expect(found.Message).To(HaveSuffix(test.message))
		})
	}
}
