// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// calls contains expressions that call each function with a cost.
var calls = map[string][]string{
	"_==_":               {"long == long + 'x'", "many == many"},
	"_!=_":               {"long != long + 'x'", "many != many"},
	"_<_":                {"long < long"},
	"_<=_":               {"long <= long"},
	"_>_":                {"long > long"},
	"_>=_":               {"long >= long"},
	"_+_":                {"long + long", "many + many", "bytes(long) + bytes(long)", "1 + 2"},
	"@in":                {"long in many", "long in {long: 1}", "3 in many.map(c, 1)"},
	"@key":               {"{'a': 1}[?long].hasValue()", "{long: 1}", "{'a': true}[long] || true", "many[many.size() - 1]"},
	"cel.@mapInsert":     {"many.transformMap(i, c, c)", "many.transformMapEntry(i, c, {string(i): c})"},
	"size":               {"long.size()", "size(bytes(long))"},
	"bool":               {"bool(long) || true"},
	"bytes":              {"bytes(long)"},
	"double":             {"double(long) == 1.0 || true"},
	"int":                {"int(long) == 1 || true"},
	"string":             {"string(bytes(long))", "string(1.7e308)"},
	"uint":               {"uint(long) == 1u || true"},
	"charAt":             {"long.charAt(3)"},
	"contains":           {"long.contains('aaab')"},
	"endsWith":           {"long.endsWith(long)"},
	"format":             {"'%s'.format([long])", "'%s'.format([many])", "'%.32f'.format([1e308])", "'%X'.format([long])"},
	"indexOf":            {"params.a.indexOf('aab')", "many.indexOf('b')"},
	"join":               {"many.join()", "many.join('xyz')"},
	"lastIndexOf":        {"params.a.lastIndexOf('baa')", "many.lastIndexOf('b')"},
	"lowerAscii":         {"long.lowerAscii()"},
	"replace":            {"long.replace('x', 'yy')", "params.a.replace('', 'yyyyyyyy')", "long.replace('x', 'yy', 10000)"},
	"split":              {"params.a.split('')", "params.a.split('a')", "params.a.split('a', 500)"},
	"startsWith":         {"long.startsWith(long)"},
	"strings.quote":      {"strings.quote(long)", `strings.quote('\n\n\n\n\n\n\n\n')`},
	"substring":          {"long.substring(3)", "long.substring(3, 9)"},
	"trim":               {"long.trim()"},
	"upperAscii":         {"long.upperAscii()"},
	"matches":            {"long.matches('^(x|x|x|x|x)*b$')", "'x'.matches('[a-z]{30}')", `'x'.matches('\\pL{40}')`},
	"find":               {"long.find('x.*y|z')", "'x'.find('[a-z]{30}')"},
	"base64.decode":      {"base64.decode(base64.encode(bytes(long)))", "base64.decode(long + '!') == b'' || true"},
	"base64.encode":      {"base64.encode(bytes(long))"},
	"distinct":           {"many.distinct()", "lists.range(100).distinct()"},
	"flatten":            {"[many, many].flatten()", "[[[[1]]]].flatten()"},
	"includes":           {"many.includes('b')"},
	"isSorted":           {"many.isSorted()"},
	"lists.range":        {"lists.range(2000)"},
	"max":                {"many.max()"},
	"min":                {"many.min()"},
	"reverse":            {"many.reverse()"},
	"slice":              {"many.slice(1, 1000)"},
	"sort":               {"many.sort()", "lists.range(100).sort()"},
	"sum":                {"lists.range(1000).sum()"},
	"sets.contains":      {"sets.contains(many, many)", "sets.contains([many], [many, [long]])"},
	"sets.equivalent":    {"sets.equivalent(many, many)"},
	"sets.intersects":    {"sets.intersects(many, ['b'])"},
	"quantity":           {"quantity('1.5Gi')"},
	"isQuantity":         {"isQuantity('1.5Gi')", "isQuantity(long)"},
	"sign":               {"sign(quantity('1'))"},
	"isGreaterThan":      {"quantity('1e99').isGreaterThan(quantity('1e-99'))"},
	"isLessThan":         {"quantity('1e99').isLessThan(quantity('1e-99'))"},
	"compareTo":          {"quantity('1e99').compareTo(quantity('1e-99'))"},
	"asApproximateFloat": {"quantity('1e99').asApproximateFloat()"},
	"asInteger":          {"quantity('1e9').asInteger()"},
	"isInteger":          {"quantity('1e9').isInteger()"},
	"add":                {"quantity('1e99').add(quantity('1e-99'))"},
	"sub":                {"quantity('1e99').sub(1)"},
	"subject":            {"subject(params.a)", "subject('system:serviceaccount:a:b')"},
}

// TestCosts compares the memory that each function allocates with its cost. The cost of an iteration includes what an
// evaluation needs for each call, so each call is repeated.
func TestCosts(t *testing.T) {
	for name, cost := range functions {
		if cost != nil && calls[name] == nil {
			t.Errorf("the function %s has no expression", name)
		}
	}
	for name, expressions := range calls {
		for _, source := range expressions {
			t.Run(name+"/"+source, func(t *testing.T) {
				g := NewWithT(t)
				in, evaluate := compileForTest(g, "lists.range(10).all(i, dyn("+source+") != dyn(true) || true)")
				before := in.meter.total
				var start, end runtime.MemStats
				runtime.ReadMemStats(&start)
				err := evaluate()
				runtime.ReadMemStats(&end)
				g.Expect(err).To(Or(Not(HaveOccurred()), MatchError(errExpensive)))
				g.Expect(end.TotalAlloc-start.TotalAlloc).To(BeNumerically("<", before-in.meter.total), "allocated bytes")
			})
		}
	}
}

// compileForTest compiles an expression, in which long is a string of 32 KiB and many a list of 1024 strings.
func compileForTest(g *WithT, source string) (*evaluation, func() error) {
	c, err := newCompiler(&v1alpha1.NamespaceTemplateSpec{Parameters: []v1alpha1.TemplateParameter{{Name: "a"}}})
	g.Expect(err).NotTo(HaveOccurred())
	compiled, err := c.compile("[params.a.replace('a', '" + strings.Repeat("x", 32) + "')].all(long, [params.a.split('')].all(many, " +
		source + "))")
	g.Expect(err).NotTo(HaveOccurred())
	in := newEvaluation(map[string]any{}, map[string]any{"a": strings.Repeat("a", 1024)}, map[string]any{}, "")
	return in, func() error {
		_, err := compiled.evaluate(context.Background(), in)
		return err
	}
}

// TestIterations shows that the iterations of each macro are metered, also those that add nothing to its result.
func TestIterations(t *testing.T) {
	for _, macro := range []string{
		"all(x, true)", "exists(x, false)", "exists_one(x, false)", "map(x, 1)", "map(x, false, 1)", "filter(x, false)",
		"all(i, x, true)", "exists(i, x, false)", "existsOne(i, x, false)", "transformList(i, x, 1)",
		"transformList(i, x, false, 1)", "transformMap(i, x, 1)", "transformMap(i, x, false, 1)",
		"transformMapEntry(i, x, {i: 1})", "transformMapEntry(i, x, false, {i: 1})",
	} {
		t.Run(macro, func(t *testing.T) {
			g := NewWithT(t)
			in, evaluate := compileForTest(g, "dyn(many."+macro+") == 1")
			g.Expect(evaluate()).To(Succeed())
			withMacro := maxTotalCost - in.meter.total
			in, evaluate = compileForTest(g, "dyn(many) == 1")
			g.Expect(evaluate()).To(Succeed())
			g.Expect(withMacro - (maxTotalCost - in.meter.total)).To(BeNumerically(">", 1024*costNode))
		})
	}
}

// TestMeterIsNotIgnored shows that an expression cannot continue after its limit.
func TestMeterIsNotIgnored(t *testing.T) {
	g := NewWithT(t)
	_, evaluate := compileForTest(g, "many.all(c, many.all(d, c != 'b') || true) || true")
	err := evaluate()
	g.Expect(err).To(MatchError(errExpensive))
	g.Expect(errors.Unwrap(err)).To(BeAssignableToTypeOf(&nodeError{}))
}
