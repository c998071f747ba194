// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	. "github.com/onsi/gomega"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// calls contains expressions that call each function with a cost.
var calls = map[string][]string{
	"_==_": {"long == long + 'x'", "many == many"},
	"_!=_": {"long != long + 'x'", "many != many"},
	"_<_":  {"long < long"},
	"_<=_": {"long <= long"},
	"_>_":  {"long > long"},
	"_>=_": {"long >= long"},
	"_+_":  {"long + long", "many + many", "bytes(long) + bytes(long)", "1 + 2"},
	"@in":  {"long in many", "long in {long: 1}", "3 in many.map(c, 1)"},
	"@key": {"{'a': 1}[?long].hasValue()", "{long: 1}", "{'a': true}[long] || true", "many[many.size() - 1]"},
	"@range": {
		"many.all(c, true)", "{long: 1}.all(c, true)", "{long: 1, long + 'x': 2}.all(c, true)",
		"many.transformMap(i, c, c).exists(k, true)", "{'a': many}.exists(k, true)",
	},
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

// repetitions is how often TestCosts repeats a call.
const repetitions = 10

// TestCosts compares the cost of each function with the memory that it allocates, and with the size of its arguments.
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
				in, compiled := compileForTest(g, fmt.Sprintf("lists.range(%d).all(i, optional.of(%s).hasValue() || true)", repetitions, source))
				var start, end runtime.MemStats
				runtime.ReadMemStats(&start)
				_, err := compiled.evaluate(context.Background(), in)
				runtime.ReadMemStats(&end)
				cost := maxTotalCost - in.meter.total
				g.Expect(err).NotTo(HaveOccurred())
				allowed := cost
				if strings.Contains(source, "uantity") || name == "subject" {
					allowed += 1 << 20 // With the race detector, pools of regular expressions lose some.
				}
				g.Expect(end.TotalAlloc-start.TotalAlloc).To(BeNumerically("<", allowed), "allocated bytes")
				read := 0
				if strings.Contains(source, "long") {
					read += longLength
				}
				if strings.Contains(source, "many") {
					read += manyLength
				}
				g.Expect(cost).To(BeNumerically(">", repetitions*read))
			})
		}
	}
}

const (
	longLength = 8 << 10
	manyLength = 1 << 8
)

// compileForTest compiles an expression, in which long is a string and many a list of strings.
func compileForTest(g *WithT, source string) (*evaluation, *expression) {
	c, err := newCompiler(&v1alpha1.NamespaceTemplateSpec{Parameters: []v1alpha1.TemplateParameter{{Name: "a"}}})
	g.Expect(err).NotTo(HaveOccurred())
	c.variables["long"], c.variables["many"] = types.StringType, types.NewListType(types.StringType)
	compiled, err := c.compile("[variables.long].all(long, [variables.many].all(many, " + source + "))")
	g.Expect(err).NotTo(HaveOccurred())
	return newEvaluation(map[string]any{}, map[string]any{"a": strings.Repeat("a", 1024)}, map[string]any{
		"long": strings.Repeat("x", longLength), "many": slices.Repeat([]string{"a"}, manyLength),
	}, ""), compiled
}

// TestLargeArguments shows that no function costs less than the limit if the size of its arguments exceeds it.
func TestLargeArguments(t *testing.T) {
	numbers := make([]ref.Val, 1000)
	for i := range numbers {
		numbers[i] = types.Int(i)
	}
	list := types.NewRefValList(types.DefaultTypeAdapter, numbers)
	for name, cost := range functions {
		if cost != nil && name != "lists.range" { // Its argument is a number.
			t.Run(name, func(t *testing.T) {
				const limit = 10
				in := &operands{values: []ref.Val{list, list, list}, limit: limit}
				NewWithT(t).Expect(cost(in)).To(BeNumerically(">=", costPerSize*(limit+1)))
			})
		}
	}
}

// TestSums shows that a sum of lists does not refer to its operands.
func TestSums(t *testing.T) {
	g := NewWithT(t)
	c, err := newCompiler(&v1alpha1.NamespaceTemplateSpec{})
	g.Expect(err).NotTo(HaveOccurred())
	compiled, err := c.compile("[1] + [2] + [3]")
	g.Expect(err).NotTo(HaveOccurred())
	value, err := compiled.evaluate(context.Background(), c.trial)
	g.Expect(err).NotTo(HaveOccurred())
	list := types.NewRefValList(types.DefaultTypeAdapter, []ref.Val{types.Int(1), types.Int(2), types.Int(3)})
	g.Expect(value).To(BeAssignableToTypeOf(list))
	g.Expect(types.Equal(value, list)).To(BeEquivalentTo(true))
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
			in, compiled := compileForTest(g, "dyn(many."+macro+") == 1 || true")
			_, err := compiled.evaluate(context.Background(), in)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(maxTotalCost - in.meter.total).To(BeNumerically(">", manyLength*costNode))
		})
	}
}

// TestMeterIsNotIgnored shows that an expression cannot continue after its limit.
func TestMeterIsNotIgnored(t *testing.T) {
	g := NewWithT(t)
	in, compiled := compileForTest(g, "many.all(c, many.all(d, c != 'b') || true) || true")
	_, err := compiled.evaluate(context.Background(), in)
	g.Expect(err).To(MatchError(errExpensive))
}

// TestLoopsAreOrdered shows that the result of a loop over a map is the same in each evaluation.
func TestLoopsAreOrdered(t *testing.T) {
	const values = "{'d': 1, 'b': 2, 'a': 3, 'c': 4, 'e': 5, 'f': 6}"
	for _, source := range []string{
		values + ".map(k, k)", values + ".filter(k, true)", values + ".transformList(k, v, k)",
		"dyn(" + values + ").map(k, k)", values + ".transformMap(k, v, v).map(k, k)",
	} {
		t.Run(source, func(t *testing.T) {
			g := NewWithT(t)
			in, compiled := compileForTest(g, source+".map(k, string(k)) == ['a', 'b', 'c', 'd', 'e', 'f']")
			for range 30 {
				value, err := compiled.evaluate(context.Background(), in)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(value.Value()).To(BeTrue())
			}
		})
	}
}

func TestCompareKeys(t *testing.T) {
	ordered := []ref.Val{types.False, types.True, types.Int(-2), types.Int(1), types.String("a"), types.String("b"), types.Uint(0)}
	for i, a := range ordered {
		for j, b := range ordered {
			NewWithT(t).Expect(compareKeys(a, b)).To(Equal(cmp.Compare(i, j)))
		}
	}
}
