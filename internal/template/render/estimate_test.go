// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// generator returns random expressions.
type generator struct {
	*rand.Rand
	// strings are the names of variables that are strings.
	strings []string
}

func (g *generator) pick(choices ...string) string { return choices[g.IntN(len(choices))] }

func (g *generator) text(depth int) string {
	if depth == 0 {
		return g.pick(append(g.strings, "''", "','", "'aaa'", "'xy'")...)
	}
	depth--
	switch g.IntN(13) {
	case 0:
		return fmt.Sprintf("(%s + %s)", g.text(depth), g.text(depth))
	case 1:
		return fmt.Sprintf("%s.replace(%s, %s)", g.text(depth), g.text(depth), g.text(depth))
	case 2:
		return fmt.Sprintf("%s.join(%s)", g.list(depth), g.text(depth))
	case 3:
		return fmt.Sprintf("'%%s-%%s'.format([%s, %s])", g.text(depth), g.list(depth))
	case 4:
		return fmt.Sprintf("(%s.size() > 3 ? %s : %s)", g.text(depth), g.text(depth), g.text(depth))
	case 5:
		return fmt.Sprintf("base64.encode(bytes(%s))", g.text(depth))
	case 6:
		return fmt.Sprintf("strings.quote(%s)", g.text(depth))
	case 7:
		return fmt.Sprintf("%s[?0].orValue(%s)", g.list(depth), g.text(depth))
	case 8:
		return fmt.Sprintf("string(%s.size())", g.list(depth))
	case 9:
		return fmt.Sprintf("subject(%s + 'u').name", g.text(depth))
	case 10:
		return fmt.Sprintf("%s.first().orValue(%s)", g.list(depth), g.text(depth))
	case 11:
		return fmt.Sprintf("{%s: %s}[?%s].orValue('')", g.text(depth), g.text(depth), g.text(depth))
	default:
		return fmt.Sprintf("%s.upperAscii()", g.text(depth))
	}
}

func (g *generator) list(depth int) string {
	if depth == 0 {
		return g.pick("params.a.split(',')", "params.a.split('')", "['b', 'cc']", "lists.range(3).map(i, string(i))")
	}
	depth--
	switch g.IntN(12) {
	case 0:
		return fmt.Sprintf("%s.split(%s)", g.text(depth), g.text(depth))
	case 1:
		return fmt.Sprintf("(%s + %s)", g.list(depth), g.list(depth))
	case 2:
		return fmt.Sprintf("%s.map(e, %s)", g.list(depth), g.within("e", depth))
	case 3:
		return fmt.Sprintf("%s.filter(e, %s.contains(%s))", g.list(depth), g.within("e", depth), g.text(depth))
	case 4:
		return fmt.Sprintf("[%s, %s]", g.text(depth), g.text(depth))
	case 5:
		return fmt.Sprintf("%s.distinct()", g.list(depth))
	case 6:
		return fmt.Sprintf("%s.map(e, %s.map(f, %s)).flatten()", g.list(depth), g.list(depth), g.within("f", depth))
	case 7:
		return fmt.Sprintf("%s.transformList(i, e, %s + string(i))", g.list(depth), g.within("e", depth))
	case 8:
		return fmt.Sprintf("%s.transformMap(i, e, %s).map(k, string(k))", g.list(depth), g.within("e", depth))
	case 9:
		return fmt.Sprintf("[%s, %s].flatten()", g.list(depth), g.list(depth))
	case 10:
		return fmt.Sprintf("ns.labels.transformMapEntry(k, v, {k + %s: v + %s}).map(k, k)", g.text(depth), g.text(depth))
	default:
		return fmt.Sprintf("%s.sort().reverse()", g.list(depth))
	}
}

// within returns a text that can use one more variable.
func (g *generator) within(variable string, depth int) string {
	inner := &generator{Rand: g.Rand, strings: append([]string{variable, variable, variable}, g.strings...)}
	return inner.text(depth)
}

// actual returns the size of a value.
func actual(value ref.Val) *size {
	switch value := value.(type) {
	case types.String:
		return stringSize(float64(len([]rune(string(value)))))
	case traits.Mapper:
		result := &size{total: sizeScalar}
		for it := value.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			entry := mapSize(1, actual(key), actual(value.Get(key)))
			entry.total -= sizeScalar
			result = concatenation(result, entry)
		}
		return result
	case traits.Lister:
		result := &size{total: sizeScalar}
		for it := value.Iterator(); it.HasNext() == types.True; {
			entry := listSize(1, actual(it.Next()))
			entry.total -= sizeScalar
			result = concatenation(result, entry)
		}
		return result
	default:
		return scalar
	}
}

// exceeds reports whether a value is larger than the bound.
func exceeds(value, bound *size) bool {
	switch {
	case value.length > bound.length, value.text > bound.text, value.total > bound.total*(1+1e-9):
		return true
	case value.element != nil && exceeds(value.element, bound.item()):
		return true
	default:
		return value.key != nil && exceeds(value.key, bound.content())
	}
}

var refusal = regexp.MustCompile("can have a value|estimated cost|nested at most")

// TestEstimateIsBound evaluates random expressions and compares the values with their bounds.
func TestEstimateIsBound(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	spec := &v1alpha1.NamespaceTemplateSpec{Parameters: []v1alpha1.TemplateParameter{{Name: "a"}, {Name: "b"}}}
	var inputs []map[string]any
	for _, a := range []string{
		strings.Repeat("a", 1024), strings.Repeat(",", 1024), strings.Repeat("世,", 512), strings.Repeat("\n", 1024), "",
		"system:serviceaccount:a:b",
	} {
		for _, b := range []string{strings.Repeat("b", 1024), ""} {
			inputs = append(inputs, map[string]any{
				varNamespace: map[string]any{
					fieldName: "shop", fieldLabels: map[string]string{"a": "b", "c": "d"}, fieldAnnotations: map[string]string{},
				},
				varParameters: map[string]string{"a": a, "b": b}, varVariables: map[string]any{}, varRequestedBy: b,
			})
		}
	}
	accepted := 0
	for range 400 {
		g := &generator{Rand: random, strings: []string{"params.a", "params.b", "ns.name", "requestedBy"}}
		source := g.list(1 + g.IntN(3))
		c, err := newCompiler(spec)
		if err != nil {
			t.Fatal(err)
		}
		compiled, err := c.compile(source)
		if err != nil {
			if !refusal.MatchString(err.Error()) {
				t.Fatalf("%s: %v", source, err)
			}
			continue
		}
		accepted++
		for _, in := range inputs {
			value, err := compiled.evaluate(context.Background(), in)
			if err == nil && exceeds(actual(value), compiled.bound) {
				t.Errorf("%s has the size %+v, which exceeds %+v", source, actual(value), compiled.bound)
			}
		}
	}
	t.Logf("%d expressions were accepted", accepted)
	if accepted < 100 {
		t.Errorf("only %d expressions were accepted", accepted)
	}
}
