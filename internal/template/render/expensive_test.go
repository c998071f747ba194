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

// TestExpensiveValues renders templates whose cost depends on the values of the namespace.
func TestExpensiveValues(t *testing.T) {
	pairs := "params.a.split(',').all(x,\n  params.a.split(',').all(y, x != y || x == y))"
	thirty := make([]string, 200)
	for i := range thirty {
		thirty[i] = fmt.Sprintf("%030d", i)
	}
	for name, c := range map[string]struct {
		expression, value string
		message           string
	}{
		"few elements":  {expression: pairs, value: "a,b,c"},
		"many elements": {expression: pairs, value: strings.Repeat(",", 1000), message: "line 2, column"},
		"short strings": {expression: chain("[params.a]", "map(s, s + s + s + s)", 4), value: "a"},
		"long strings": {
			expression: chain("[params.a]", "map(s, s + s + s + s + s + s + s + s)", 4), value: strings.Repeat("a", 1000),
			message: "line 1, column 121: the expression costs more than 20000000",
		},
		"a limit that || cannot ignore": {
			expression: "params.a.split('').all(c, params.a.split('').all(d, true)) || true", value: strings.Repeat("a", 1000),
			message: "line 1, column",
		},
		"distinct on 200 strings of 30 characters": {
			expression: "['" + strings.Join(thirty[:100], "', '") + "', params.a].distinct().size() + " +
				"lists.range(200).map(i, '000000000000000000000000000' + string(i + 100)).distinct().size()", value: "a",
		},
		"keys of all labels":        {expression: "ns.labels.all(k, k in ns.labels && ns.labels[k] != '')"},
		"pairs of annotations":      {expression: "ns.annotations.map(k, ns.annotations.map(j, k + j)).size()"},
		"all annotations as a text": {expression: "'%s'.format([ns.annotations.map(k, ns.annotations[k])]).size()"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			program := compile(t, configMap(map[string]any{"x": "${" + c.expression + "}"}))
			in := largest("a")
			in.Parameters["a"] = c.value
			objects, err := program.Render(context.Background(), in)
			if c.message == "" {
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(objects).To(HaveLen(1))
				return
			}
			g.Expect(err).To(HaveField("Reason", v1alpha1.ReasonInputTooLarge))
			g.Expect(err.Error()).To(HavePrefix("object map: spec.objects[0].template.data.x: " + c.message))
			_, again := program.Render(context.Background(), in)
			g.Expect(again).To(Equal(err), "The error is the same in each pass.")
		})
	}
}

// TestExpensiveTogether renders templates whose expressions exceed the limit only together.
func TestExpensiveTogether(t *testing.T) {
	const halves = "params.a.split('').all(c, params.a.contains(c + 'b') || params.a.contains(c))" // 18 of 20 million
	variables := "parameters: [{name: a}, {name: teams, type: List}]\nvariables:\n"
	for i := range 8 {
		variables += fmt.Sprintf("- {name: v%d, expression: \"%s\"}\n", i, halves)
	}
	for name, c := range map[string]struct{ template, message string }{
		"variables": {
			template: variables + "objects: [{name: x, template: {apiVersion: v1, kind: ConfigMap, metadata: {name: x}}}]",
			message:  "variable v",
		},
		"elements of forEach": {
			template: `
parameters: [{name: a}, {name: teams, type: List}]
objects:
- name: team
  forEach: teams
  template: {apiVersion: v1, kind: ConfigMap, metadata: {name: "${item}"}, data: {x: "${string(` + halves + `)}"}}`,
			message: `object team: element "t5" of teams: spec.objects[0].template.data.x: `,
		},
		"includeWhen": {
			template: `
parameters: [{name: a}, {name: teams, type: List}]
objects:
- name: team
  forEach: teams
  includeWhen: "` + halves + `"
  template: {apiVersion: v1, kind: ConfigMap, metadata: {name: "${item}"}}`,
			message: `object team: element "t5" of teams: includeWhen`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			program := compile(t, parse(t, c.template))
			in := input()
			in.Parameters = map[string]string{"a": strings.Repeat("a", 1000), "teams": "t0,t1,t2,t3,t4,t5,t6,t7"}
			_, err := program.Render(context.Background(), in)
			g.Expect(err).To(HaveField("Reason", v1alpha1.ReasonInputTooLarge))
			g.Expect(err.Error()).To(And(HavePrefix(c.message), ContainSubstring("line 1, column"),
				HaveSuffix("the expressions of the template cost more than 100000000 together")))
			in.Parameters["teams"], in.Parameters["a"] = "t0,t1", "aa"
			_, err = program.Render(context.Background(), in)
			g.Expect(err).NotTo(HaveOccurred())
		})
	}
}

// TestExpensiveWithoutValues compiles a template that is too expensive in every namespace.
func TestExpensiveWithoutValues(t *testing.T) {
	g := NewWithT(t)
	_, errs := render.Compile(configMap(map[string]any{"x": "${lists.range(1000).all(i, lists.range(1000).all(j, i + j >= 0))}"}))
	g.Expect(errs).To(HaveLen(1))
	g.Expect(errs[0].Error()).To(And(ContainSubstring("spec.objects[0].template.data.x"),
		ContainSubstring("line 1, column 57: the expression costs more than 20000000")))
}

// TestVariables renders variables whose values objects cannot contain.
func TestVariables(t *testing.T) {
	nest := func(depth int) string { return strings.Repeat("[", depth) + "1" + strings.Repeat("]", depth) }
	for name, c := range map[string]struct{ first, second, x, want, message string }{
		"bytes": {first: "base64.decode('//79')", second: "1", x: "base64.encode(variables.a)", want: "//79"},
		"deep":  {first: nest(25), second: strings.ReplaceAll(nest(25), "1", "variables.a"), x: "'x'", want: "x"},
		"too deep": {
			first: nest(30), second: "[variables.a].map(v, [[v, v], [v, v]]).map(v, " + strings.ReplaceAll(nest(20), "1", "[v]") + ").map(v, " +
				strings.ReplaceAll(nest(20), "1", "v") + ")", x: "'x'", message: "variable b: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			program := compile(t, parse(t, fmt.Sprintf(`
variables: [{name: a, expression: "%s"}, {name: b, expression: "%s"}]
objects: [{name: m, template: {apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {x: "${%s}"}}}]`, c.first, c.second, c.x)))
			objects, err := program.Render(context.Background(), input())
			if c.message != "" {
				g.Expect(err).To(MatchError(HavePrefix(c.message)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(objects[0].Manifest.Object).To(HaveKeyWithValue("data", HaveKeyWithValue("x", c.want)))
		})
	}
}
