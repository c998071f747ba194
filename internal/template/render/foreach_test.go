// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template/render"
)

const teamsTemplate = `
parameters: [{name: teams, type: List}]
objects:
- name: team
  forEach: teams
  includeWhen: item != 'skipped'
  template:
    apiVersion: v1
    kind: ConfigMap
    metadata: {name: "team-${item}"}
    data: {item: "${item}", all: "${params.teams.join('+')}", mapped: "${['x'].map(item, item + item)[0]}"}
- name: static
  template: {apiVersion: v1, kind: ConfigMap, metadata: {name: static}}
`

func TestForEach(t *testing.T) {
	many := strings.TrimSuffix(strings.Repeat("a,", 33), ",")
	program := compile(t, parse(t, teamsTemplate))
	for name, c := range map[string]struct {
		value   string
		names   []string
		reason  string
		message string
	}{
		"no elements":    {value: "", names: []string{"static"}},
		"one element":    {value: "red", names: []string{"team-red", "static"}},
		"in their order": {value: "red,blue,skipped,0", names: []string{"team-red", "team-blue", "team-0", "static"}},
		"an invalid name": {
			value: "red,A B", reason: v1alpha1.ReasonInvalidObject, message: `object team: element "A B" of teams: metadata.name`,
		},
		"an expression as a value": {
			value: "${ns.name}", reason: v1alpha1.ReasonInvalidObject, message: `element "${ns.name}" of teams: metadata.name`,
		},
		"a name that is too long": {
			value: strings.Repeat("a", 1024), reason: v1alpha1.ReasonInvalidObject, message: "element \"aaa",
		},
		"a repeated element": {
			value: "red,red", reason: v1alpha1.ReasonInvalidObject, message: `element "red" of teams: another object`,
		},
		"too many elements": {value: many, reason: v1alpha1.ReasonInvalidParameter, message: "33 elements; at most 32"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			in := input()
			in.Parameters = map[string]string{"teams": c.value}
			objects, err := program.Render(context.Background(), in)
			if c.reason != "" {
				g.Expect(objects).To(BeNil())
				g.Expect(err).To(HaveField("Reason", c.reason))
				g.Expect(err.Error()).To(ContainSubstring(c.message))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			var names []string
			for _, object := range objects {
				names = append(names, object.Manifest.GetName())
				if object.Name == "team" {
					g.Expect(object.Manifest.Object).To(HaveKeyWithValue("data", map[string]any{
						"item": strings.TrimPrefix(object.Manifest.GetName(), "team-"),
						"all":  strings.ReplaceAll(c.value, ",", "+"), "mapped": "xx",
					}))
				}
			}
			g.Expect(names).To(Equal(c.names))
		})
	}
}

func TestObjectMetadata(t *testing.T) {
	program := compile(t, parse(t, `
parameters: [{name: owner}, {name: class}]
objectMetadata:
  labels: {owner: "${params.owner}", part-of: "${ns.name}-base", class: "${optional.ofNonZeroValue(params.class)}"}
  annotations: {example.com/note: static}
objects:
- name: plain
  template: {apiVersion: v1, kind: ConfigMap, metadata: {name: plain}}
- name: own
  template:
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: own, labels: {owner: me, app: web}}
    spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}}}
- name: computed
  template: {apiVersion: v1, kind: ConfigMap, metadata: {name: computed, labels: "${{'owner': 'them'}}"}}
- name: copy
  sourceRef: {kind: Secret, name: regcred}
`))
	g := NewWithT(t)
	in := input()
	in.Parameters = map[string]string{"owner": "ann"}
	objects, err := program.Render(context.Background(), in)
	g.Expect(err).NotTo(HaveOccurred())
	got := map[string]map[string]string{}
	for _, object := range objects {
		got[object.Name] = object.Manifest.GetLabels()
		g.Expect(object.Manifest.GetAnnotations()).To(Equal(map[string]string{"example.com/note": "static"}))
		if object.Name == "own" {
			g.Expect(object.Manifest.Object["spec"]).To(Equal(map[string]any{
				"selector": map[string]any{"matchLabels": map[string]any{"app": "web"}},
				"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "web"}}},
			}))
		}
	}
	g.Expect(got).To(Equal(map[string]map[string]string{
		"plain":    {"owner": "ann", "part-of": "shop-base"},
		"own":      {"owner": "me", "app": "web", "part-of": "shop-base"},
		"computed": {"owner": "them", "part-of": "shop-base"},
		"copy":     {"owner": "ann", "part-of": "shop-base"},
	}))

	for value, reason := range map[string]string{
		"a b": v1alpha1.ReasonInvalidObject, strings.Repeat("a", 64): v1alpha1.ReasonInvalidObject,
	} {
		in.Parameters["owner"] = value
		_, err = program.Render(context.Background(), in)
		g.Expect(err).To(HaveField("Reason", reason))
		g.Expect(err.Error()).To(ContainSubstring("metadata.labels"))
	}
}

// The size of the metadata counts for each object.
func TestObjectMetadataSize(t *testing.T) {
	g := NewWithT(t)
	source := "parameters: [{name: a}]\nobjectMetadata: {annotations: {x: \"${params.a.replace('a', '" + strings.Repeat("b", 60) +
		"')}\"}}\nobjects:\n"
	for i := range 18 {
		source += fmt.Sprintf("- {name: o%d, template: {apiVersion: v1, kind: ConfigMap, metadata: {name: o%d}}}\n", i, i)
	}
	in := render.Input{Namespace: input().Namespace, Parameters: map[string]string{"a": strings.Repeat("a", 1024)}}
	_, err := compile(t, parse(t, source)).Render(context.Background(), in)
	g.Expect(err).To(HaveField("Reason", v1alpha1.ReasonOutputTooLarge))
}
