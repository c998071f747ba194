// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template/render"
)

// maxAllocated is the number of bytes that Compile may allocate for a template that it refuses. About half of
// it is the decoded JSON of the largest object that the API server stores.
const maxAllocated = 96 << 20

// TestHostileAuthors compiles templates that would otherwise exhaust the memory or the CPU, or cause a panic.
func TestHostileAuthors(t *testing.T) {
	expression := func(text string) string { return fmt.Sprintf("{x: %q}", "${"+text+"}") }
	// The type of each element contains that of the one before it eight times.
	types := "1"
	for _, variable := range []string{"b", "c", "d", "e"} {
		pair := fmt.Sprintf("{%[1]s: %[1]s}", variable)
		types = fmt.Sprintf("[{{%[1]s: %[1]s}: {%[1]s: %[1]s}}].map(%[2]s, %[3]s)", pair, string(variable[0]-1), types)
	}
	for name, c := range map[string]struct{ data, text string }{
		"map with bytes as key":      {expression("{b'a': 1}.size()"), "keys of a map"},
		"map with bytes of type dyn": {expression("{dyn(b'a'): 1}.size()"), "keys of a map"},
		"exponential types":          {expression("[1].map(e, " + types + ")"), "too complex"},
		"deep lists":                 {listOf(expression(strings.Repeat("[", 24)+"1"+strings.Repeat("]", 24)), 500), "too complex"},
		"many brackets":              {listOf(expression(strings.Repeat("(", 28)+"1"+strings.Repeat(")", 28)), 500), "too complex"},
		"comparison of nested lists": {
			expression("[lists.range(400).map(i, lists.range(38) + [i])].map(x, sets.contains(x, x))"), "costs more than",
		},
		"many values":          {listOf("{}", 480000), "too many values"},
		"deep object":          {strings.Repeat(`{"b": "${", "a": `, 9000) + "1" + strings.Repeat("}", 9000), "nested at most"},
		"errors in all values": {listOf(`"${"`, 60000), "no matching"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			spec := parse(t, "objects: [{name: x, template: {}}]")
			spec.Objects[0].Template.Raw = []byte(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": ` +
				strings.ReplaceAll(c.data, "{x:", `{"x":`) + "}")
			expectRefused(g, func() (int, string) {
				_, errs := render.Compile(spec)
				g.Expect(errs).NotTo(BeEmpty())
				return len(errs), errs[len(errs)-1].Error()
			}, c.text)
		})
	}
}

// TestHostileMetadata compiles templates with many errors in their metadata.
func TestHostileMetadata(t *testing.T) {
	var entries strings.Builder
	for i := range 50000 {
		fmt.Fprintf(&entries, `, "-%d": 1`, i)
	}
	for name, metadata := range map[string]string{
		"metadata": `{"name": "x"` + entries.String() + "}",
		"labels":   `{"name": "x", "labels": {"a": "b"` + entries.String() + "}}",
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			spec := parse(t, "objects: [{name: x, template: {}}]")
			spec.Objects[0].Template.Raw = []byte(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": ` + metadata + "}")
			expectRefused(g, func() (int, string) {
				_, errs := render.Compile(spec)
				g.Expect(errs).To(HaveLen(1))
				return len(errs), errs[0].Error()
			}, "entries")
		})
	}
}

func TestErrorsAreBounded(t *testing.T) {
	g := NewWithT(t)
	in := input()
	in.Namespace.Annotations = map[string]string{}
	for i := range 250 {
		in.Namespace.Annotations[fmt.Sprintf("key-%d", i)] = strings.Repeat("-", 200)
	}
	spec := parse(t, `objects: [{name: x, template: {
  apiVersion: v1, kind: ConfigMap, metadata: {name: x, labels: "${ns.annotations}"}}}]`)
	_, err := compile(t, spec).Render(context.Background(), in)
	g.Expect(err).To(HaveField("Reason", v1alpha1.ReasonInvalidObject))
	g.Expect(len(err.Error())).To(BeNumerically("<", 16<<10))
}

// expectRefused calls a function that returns the number of errors and one of them.
func expectRefused(g *WithT, compile func() (count int, text string), text string) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	count, got := compile()
	runtime.ReadMemStats(&after)
	g.Expect(after.TotalAlloc-before.TotalAlloc).To(BeNumerically("<", maxAllocated), "allocated bytes")
	g.Expect(count).To(BeNumerically("<=", 16))
	g.Expect(len(got)).To(BeNumerically("<", 4096))
	g.Expect(got).To(ContainSubstring(text))
}

func listOf(element string, n int) string {
	return "[" + strings.TrimSuffix(strings.Repeat(element+", ", n), ", ") + "]"
}
