// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

func storedRevision(template *v1alpha1.NamespaceTemplate, name string, number int64) appsv1.ControllerRevision {
	owner := metav1.NewControllerRef(template, v1alpha1.GroupVersion.WithKind("NamespaceTemplate"))
	return appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Name: "team-" + name, OwnerReferences: []metav1.OwnerReference{*owner}},
		Revision:   number,
	}
}

// observedTemplate returns a template whose status describes its spec.
func observedTemplate(latest, current string) *v1alpha1.NamespaceTemplate {
	return &v1alpha1.NamespaceTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "team", UID: "1", Generation: 2},
		Status: v1alpha1.NamespaceTemplateStatus{
			ObservedGeneration: 2, UpdateRevision: latest, CurrentRevision: current,
		},
	}
}

func TestUndoTarget(t *testing.T) {
	unobserved := observedTemplate("c", "c")
	unobserved.Generation++
	for name, test := range map[string]struct {
		template *v1alpha1.NamespaceTemplate
		stored   []string
		number   int64
		want     string
		err      string
	}{
		"the current revision during a rollout":       {template: observedTemplate("c", "a"), stored: []string{"a", "b", "c"}, want: "a"},
		"the previous revision after a rollout":       {template: observedTemplate("c", "c"), stored: []string{"a", "b", "c"}, want: "b"},
		"the current revision after an invalid spec":  {template: observedTemplate("invalid", "b"), stored: []string{"a", "b"}, want: "b"},
		"the current revision before the observation": {template: unobserved, stored: []string{"a", "b", "c"}, want: "c"},
		"a number":                           {template: observedTemplate("c", "c"), stored: []string{"a", "b", "c"}, number: 1, want: "a"},
		"the number of the spec":             {template: observedTemplate("c", "a"), stored: []string{"a", "b", "c"}, number: 3, err: "already has revision 3"},
		"a number that is not stored":        {template: observedTemplate("c", "c"), stored: []string{"a", "b", "c"}, number: 4, err: "revision 4 of NamespaceTemplate \"team\" not found"},
		"only one revision":                  {template: observedTemplate("a", "a"), stored: []string{"a"}, err: "no earlier revision"},
		"no revision":                        {template: observedTemplate("invalid", ""), err: "no earlier revision"},
		"a current revision that is deleted": {template: observedTemplate("c", "a"), stored: []string{"b", "c"}, err: "not stored"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var stored []appsv1.ControllerRevision
			for i, revision := range test.stored {
				stored = append(stored, storedRevision(test.template, revision, int64(i)+1))
			}
			target, err := UndoTarget(test.template, Revisions(test.template, stored), test.number)
			if test.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(target.Name).To(Equal(test.want))
		})
	}
}

func TestRevisions(t *testing.T) {
	g := NewWithT(t)
	template := observedTemplate("b", "a")
	deleted := observedTemplate("b", "a")
	deleted.UID = types.UID("0")
	revisions := Revisions(template, []appsv1.ControllerRevision{
		storedRevision(template, "b", 2), storedRevision(deleted, "c", 3), storedRevision(template, "a", 1),
	})
	g.Expect(revisions).To(HaveLen(2))
	g.Expect(revisions[0].Name).To(Equal("a"))
	g.Expect(revisions[1].Number).To(BeEquivalentTo(2))
}

func TestUndoPatch(t *testing.T) {
	for name, test := range map[string]struct {
		content, objects, variables, metadata, yaml, err string
	}{
		"unknown fields are kept": {
			content: `{"objects":[{"name":"a","future":{"x":12345678901234567890}}],"variables":[{"name":"v"}]}`,
			objects: `[{"name":"a","future":{"x":12345678901234567890}}]`, variables: `[{"name":"v"}]`, metadata: "null",
			yaml: "objects:\n- future:\n    x: 12345678901234567890\n  name: a\nvariables:\n- name: v\n",
		},
		"only metadata": {
			content: `{"metadata":{"labels":{"a":"b"}},"objects":null}`,
			objects: "null", variables: "null", metadata: `{"labels":{"a":"b"}}`,
			yaml: "metadata:\n  labels:\n    a: b\nobjects: null\n",
		},
		"no objects":     {content: `{"parameters":[]}`, err: "it contains no objects"},
		"not a document": {content: `[`, err: "failed to decode revision 3"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			template := observedTemplate("b", "a")
			stored := storedRevision(template, "a", 3)
			stored.Data = runtime.RawExtension{Raw: []byte(test.content)}
			revision := &Revisions(template, []appsv1.ControllerRevision{stored})[0]
			patch, err := revision.UndoPatch(template)
			var out strings.Builder
			writeErr := revision.Write(&out)
			if test.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.err)))
				g.Expect(writeErr).To(MatchError(ContainSubstring(test.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(patch).To(MatchJSON(`[{"op":"test","path":"/metadata/uid","value":"1"},` +
				`{"op":"test","path":"/metadata/generation","value":2},` +
				`{"op":"add","path":"/spec/parameters","value":null},` +
				`{"op":"add","path":"/spec/variables","value":` + test.variables + `},` +
				`{"op":"add","path":"/spec/metadata","value":` + test.metadata + `},` +
				`{"op":"add","path":"/spec/objectMetadata","value":null},` +
				`{"op":"add","path":"/spec/objects","value":` + test.objects + `}]`))
			g.Expect(writeErr).NotTo(HaveOccurred())
			g.Expect(out.String()).To(Equal(test.yaml))
		})
	}
}
