// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template/render"
)

// measure returns the memory that a function allocates, and the processor time that it uses. The elapsed
// time depends on what else runs on the machine.
func measure(f func()) (allocated uint64, used time.Duration) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := processorTime()
	f()
	used = processorTime() - start
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc, used
}

func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// largest is the largest permitted input.
func largest(fill string) render.Input {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: strings.Repeat("n", 63), Labels: map[string]string{}, Annotations: map[string]string{},
	}}
	for i := range 100 {
		key := strings.Repeat("k", 40) + string(rune('a'+i%26)) + string(rune('a'+i/26))
		namespace.Labels[key] = strings.Repeat("v", 63)
		if i < 15 {
			namespace.Annotations[key] = strings.Repeat(fill, 4096/len(fill))
		}
	}
	long := strings.Repeat(fill, 1024)
	return render.Input{Namespace: namespace, Parameters: map[string]string{"a": long, "b": long}, RequestedBy: long}
}

// chain returns an expression that applies a macro to a list several times.
func chain(first, macro string, n int) string { return first + strings.Repeat("."+macro, n) }

// shared returns an expression whose value contains each element of a list a million times.
func shared(first string) string { return chain(first, "map(x, [x"+strings.Repeat(", x", 31)+"])", 4) }

// long is a list with a string of 32 KiB for the largest input.
const long = "[params.a.replace('a', '" + "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" + "')]"

func nested(n int, before, inner, after string) string {
	return strings.Repeat(before, n) + inner + strings.Repeat(after, n)
}

// bombs are expressions that are expensive to compile or to evaluate.
var bombs = map[string]string{
	"nested replace":         "params.a.replace('', params.b).replace('', params.b)",
	"three replaces":         "params.a.replace('a', params.b).replace('a', params.b).replace('a', params.b)",
	"one replace":            "params.a.replace('', params.b)",
	"replace in map":         "params.a.split('').map(c, params.a.replace('', params.b))",
	"format precision":       "'%.1000000000f'.format([1.0])",
	"format many":            "'" + strings.Repeat("%s", 100) + "'.format([" + strings.Repeat("params.a,", 99) + "params.a])",
	"format fixed":           "'" + strings.Repeat("%.32f", 300) + "'.format([" + strings.Repeat("1e308,", 299) + "1e308])",
	"format nested":          "params.a.split('').map(c, '%s'.format([params.a]))",
	"format hex":             "'%X'.format([params.a.replace('', 'xxxxxxxx')])",
	"join":                   "params.a.split('').join(params.b)",
	"join of joins":          "params.a.split('').map(c, params.a).join(params.b)",
	"square":                 "params.a.split('').map(c, params.a)",
	"large values of a map":  "[lists.range(4000)].map(v, [{'a': [v,v,v,v,v,v,v,v,v,v,v,v,v]}].map(m, lists.range(700).all(i, m.exists(k, true))))",
	"sorted keys":            "[lists.range(2000).transformMap(i, v, v)].map(m, lists.range(500).all(i, m.exists(k, true)))",
	"cube":                   "params.a.split('').map(c, params.a.split('').map(d, params.a.split('')))",
	"loops":                  nested(30, "lists.range(2).map(x, ", "1", ")"),
	"loops of all":           "params.a.split('').all(a, params.a.split('').all(b, params.a.split('').all(c, c != 'z')))",
	"two loops":              "params.a.split('').all(a, params.a.split('').all(b, true))",
	"deep loops of one":      nested(100, "[1].map(x, ", "x", ")"),
	"deep loops of string":   nested(30, "['a'].map(x, ", "x", ")"),
	"range":                  "lists.range(1000000000)",
	"range of variable":      "lists.range(int(params.a))",
	"range of range":         "lists.range(1024).map(x, lists.range(1024))",
	"flatten":                "lists.range(1024).map(x, lists.range(100)).flatten()",
	"flatten depth":          "dyn([[[1]]]).flatten(1000000)",
	"distinct":               "params.a.split('').distinct()",
	"distinct of long":       "params.a.split('').map(c, c + '" + strings.Repeat("x", 500) + "').distinct()",
	"sets":                   "sets.equivalent(params.a.split(''), params.b.split(''))",
	"search":                 "params.a.indexOf(params.b)",
	"search long":            "params.a.replace('', 'xxxxxxxxx').indexOf(params.b.replace('', 'xxxxxxxxx'))",
	"pattern":                "params.a.matches('(.{1000}.{1000}.{1000}.{1000})*')",
	"pattern of repeats":     "params.a.matches('" + strings.Repeat(".{1000}", 500) + "')",
	"pattern nested":         "params.a.matches('((a{30}){30}){30}')",
	"pattern backtracking":   "params.a.matches('^(a|a|a|a|a|a|a|a)*b$')",
	"pattern of input":       "params.a.matches(params.b)",
	"pattern in a loop":      "params.a.split('').all(c, params.a.matches('(a|a)*b'))",
	"find":                   "params.a.find('a.*b|a')",
	"findAll":                "params.a.findAll('a.*b|a').size() > 0",
	"optMap":                 "optional.of(params.a)" + strings.Repeat(".optMap(v, v)", 200),
	"optFlatMap":             "optional.of(params.a)" + strings.Repeat(".optFlatMap(v, optional.of(v))", 100),
	"sortBy":                 "[1, 2]" + strings.Repeat(".sortBy(x, x)", 200),
	"bindings":               "cel.bind(a, params.a + params.a, cel.bind(b, a + a, b + b))",
	"accumulator":            "[1, 2].map(x, dyn(__result__) + dyn(__result__))",
	"hidden accumulator":     "[1, 2].map(x, @result + @result)",
	"concatenation":          strings.Repeat("params.a + ", 300) + "params.a",
	"list concatenation":     "(" + strings.Repeat("params.a.split('') + ", 200) + "[''])",
	"lists in a loop":        "lists.range(1000).map(i, " + strings.Repeat("[1] + ", 30) + "[1])",
	"sum of lists":           strings.Repeat("[1] + ", 800) + "[1]",
	"parentheses":            nested(2000, "(", "1", ")"),
	"brackets":               nested(2000, "[", "1", "]"),
	"unclosed":               strings.Repeat("[", 4000),
	"unclosed calls":         strings.Repeat("a(", 2000),
	"braces":                 nested(1000, "{1:", "1", "}"),
	"negations":              strings.Repeat("!", 4000) + "true",
	"minus":                  strings.Repeat("-", 4000) + "1",
	"selections":             "ns" + strings.Repeat(".a", 2000),
	"indexes":                "ns.labels" + strings.Repeat("[?'a']", 600),
	"conditions":             strings.Repeat("true ? 1 : ", 360) + "1",
	"alternatives":           strings.Repeat("true || ", 500) + "true",
	"types":                  nested(30, "[", "[]", "]") + " == " + nested(30, "[", "[1]", "]"),
	"polymorphic":            "[[]]" + strings.Repeat(" + [[]]", 500),
	"maps of maps":           "ns.labels.transformMap(k, v, ns.labels.transformMap(k, v, ns.labels))",
	"annotations":            "ns.annotations.map(k, ns.annotations[k])",
	"annotations twice":      "ns.annotations.map(k, ns.annotations.map(j, ns.annotations[j]))",
	"quantity":               "quantity('1e999999999')",
	"small quantity":         "quantity('1e-999999999')",
	"quantity of input":      "quantity(params.a)",
	"quantity sum":           "string(quantity('1e2147483647').add(quantity('1e-2147483648')).asApproximateFloat())",
	"quantity comparison":    "quantity('1e100000000').isGreaterThan(quantity('1'))",
	"bytes":                  "string(bytes(params.a.replace('', 'xxxx')))",
	"base64":                 nested(12, "base64.encode(bytes(", "params.a", "))"),
	"quotes":                 nested(15, "strings.quote(", "params.a", ")"),
	"subjects":               "params.a.split('').map(u, u == '' ? {} : subject(u))",
	"sort":                   "params.a.split('').sort().reverse().sort()",
	"constant replace":       "'" + strings.Repeat("a", 900) + "'.replace('', '" + strings.Repeat("b", 900) + "').replace('', '" + strings.Repeat("b", 900) + "')",
	"in":                     "params.a.split('').exists(c, (c + 'x') in params.a.split(''))",
	"equality of lists":      "params.a.split('').all(c, params.a.split('') == params.b.split(''))",
	"transformMap":           "params.a.split('').transformMap(i, c, c)",
	"transformMapEntry":      "params.a.split('').transformMapEntry(i, c, {string(i): params.a})",
	"loops of exists":        nested(30, "['a'].exists(x, ", "true", ")"),
	"loops of maps":          nested(24, "{'a': 'b'}.transformMap(x, y, ", "x + y", ")"),
	"loops of filter":        nested(20, "['a'].filter(x, [x] == ", "[x]", ")"),
	"types of maps":          nested(30, "{'a': ", "{}", "}") + " == " + nested(30, "{'a': ", "{'a': 1}", "}"),
	"types of optionals":     nested(30, "optional.of(", "[]", ")") + " == " + nested(30, "optional.of(", "[1]", ")"),
	"conditions of lists":    strings.Repeat("true ? [] : ", 60) + "[1]",
	"nested conditions":      nested(20, "(true ? ", "[]", " : [[]])"),
	"strings that grow":      chain("[params.a]", "map(s, s"+strings.Repeat(" + s", 30)+")", 4),
	"lists that grow":        chain("[params.a.split('')]", "map(x, x"+strings.Repeat(" + x", 30)+")", 4) + "[0].size()",
	"empty lists":            chain("[[]]", "map(x, x"+strings.Repeat(" + x", 30)+")", 4) + "[0].size()",
	"deep sums of lists":     "[" + strings.Repeat("[1] + ", 300) + "[1]].map(x, lists.range(1000).map(i, lists.range(300).map(j, x[j])))",
	"shared lists equal":     shared("[params.a]") + " == " + shared("[params.b]"),
	"shared lists in":        shared("[params.a]") + ".exists(y, y in [[y], [y, y]])",
	"shared lists format":    "'%s'.format([" + shared("[params.a]") + "])",
	"shared lists distinct":  shared("[params.a, params.b]") + ".distinct()",
	"shared lists flatten":   shared("[params.a, params.b]") + ".flatten().flatten().flatten()",
	"shared lists":           shared("[params.a, params.b]"),
	"shared maps":            chain("{'a': params.a}", "transformMap(k, x, {"+strings.TrimSuffix(strings.Repeat("'%d': x, ", 30), ", ")+"})", 4),
	"shared optionals":       chain("[optional.of([params.a])]", "map(x, optional.of([x"+strings.Repeat(", x", 30)+"]))", 4) + " == [optional.of([])]",
	"dropped iterations":     "lists.range(1000).filter(a, lists.range(1000).filter(b, lists.range(1000).filter(c, false) != []) != [])",
	"counted iterations":     "lists.range(1000).exists_one(a, lists.range(1000).exists_one(b, lists.range(1000).exists_one(c, false)))",
	"two variables":          "lists.range(1000).all(i, a, lists.range(1000).all(j, b, lists.range(1000).exists(k, c, i + j < k)))",
	"nested entries":         "params.a.split('').transformMapEntry(i, c, {string(i): params.a.split('').transformMapEntry(j, d, {string(j): d})})",
	"maps of all":            "ns.annotations.transformMap(k, v, ns.annotations.transformMap(l, w, v + w))",
	"long keys":              long + ".map(s, lists.range(1000).map(i, {s: i}))",
	"access with long keys":  long + ".map(s, lists.range(1000).map(i, ns.labels[?s].hasValue()))",
	"absent long keys":       long + ".map(s, lists.range(1000).all(i, ns.labels[s] == '' || true))",
	"long keys in":           long + ".map(s, lists.range(1000).all(i, s in ['a', 'b'] || s in ns.labels || true))",
	"ignored errors":         long + ".map(s, lists.range(1000).all(i, int(s) == 1 || quantity(s).isInteger() || true))",
	"ignored limit":          "lists.range(1000).all(i, lists.range(1000).all(j, lists.range(1000).all(k, false || true)) || true)",
	"distinct of most":       "[lists.range(40000)].map(x, x.distinct())",
	"sets of most":           "[lists.range(20000)].map(x, sets.equivalent(x, x.reverse()))",
	"sizes in a loop":        long + ".map(s, lists.range(1000).map(i, s.size()))",
	"substrings in a loop":   long + ".map(s, lists.range(1000).map(i, s.substring(i)))",
	"characters in a loop":   long + ".map(s, lists.range(1000).map(i, s.charAt(i)))",
	"equality in a loop":     "lists.range(1000).all(i, ns.annotations == ns.annotations)",
	"order in a loop":        long + ".map(s, lists.range(1000).all(i, s < s + 'y'))",
	"search in a loop":       long + ".map(s, lists.range(1000).all(i, s.contains(s)))",
	"quadratic search":       long + ".map(s, s.indexOf(s.substring(100) + 'z'))",
	"find in a loop":         "params.a.split('').all(i, params.a.find('(a|b|c|d|e|f|g|h)*x') == '')",
	"large classes":          "params.a.split('').all(i, 'a'.matches('" + strings.Repeat("\\\\pL", 40) + "'))",
	"many patterns":          strings.Repeat("'a'.matches('a{1000}') || ", 150) + "true",
	"unused patterns":        strings.Repeat("true || 'a'.matches('(a{1000}){1}b{900}') || ", 90) + "true",
	"base64 in a loop":       long + ".map(s, lists.range(1000).map(i, base64.encode(bytes(s))))",
	"invalid base64":         long + ".map(s, lists.range(1000).all(i, base64.decode(s) == b'' || true))",
	"sets of lists":          "[params.a.split('').map(c, [c, c])].map(x, sets.equivalent(x, x.reverse()))",
	"sets of annotations":    "[ns.annotations.map(k, ns.annotations[k])].map(x, lists.range(100).map(i, sets.intersects(x, [params.a])))",
	"format fixed in a loop": "lists.range(1000).map(i, '%.32f %.32e'.format([1e308, 1e-308]))",
	"format width":           "'%1000000000d'.format([1])",
	"format of maps":         "lists.range(1000).map(i, '%s'.format([ns.annotations]))",
	"quantities in a loop":   "lists.range(1000).map(i, quantity('1e99').add(quantity('1e-99')).compareTo(quantity('1e98')))",
	"range of ranges":        "lists.range(1000).map(i, lists.range(i * i)).flatten()",
	"whole map as element":   "[ns.annotations, ns.annotations, ns.annotations].map(x, [x, x, x, x]).map(x, [x, x, x, x])",
}

// Limits of an acceptance and of a rendering. They leave room for slow machines.
const (
	maxMemory   = 100 << 20
	maxDuration = time.Second
)

// TestBombs measures each bomb when it is compiled and, if it is accepted, when it is evaluated with the
// largest input.
func TestBombs(t *testing.T) {
	compile(t, configMap(nil))
	for name, bomb := range bombs {
		t.Run(name, func(t *testing.T) {
			measureBombs(t, bomb, 1)
		})
	}
}

// TestManyBombs measures templates that contain as many bombs as the limits of the template permit.
func TestManyBombs(t *testing.T) {
	for _, name := range []string{
		"one replace", "join", "format fixed", "format many", "square", "subjects", "transformMap", "transformMapEntry",
		"find", "bytes", "nested conditions", "quantity comparison", "loops of exists", "nested entries", "ignored errors",
		"substrings in a loop", "characters in a loop", "quantities in a loop", "long keys", "shared maps", "many patterns",
		"unused patterns", "large values of a map", "sorted keys",
	} {
		t.Run(name, func(t *testing.T) {
			for n := 128; !measureBombs(t, bombs[name], n); n = n * 3 / 4 {
				NewWithT(t).Expect(n).To(BeNumerically(">", 0))
			}
		})
	}
}

// measureBombs measures n times the same bomb. It reports whether the template was accepted.
func measureBombs(t *testing.T, bomb string, n int) bool {
	t.Helper()
	g := NewWithT(t)
	data := map[string]any{}
	for i := range n {
		data[strconv.Itoa(i)] = "${" + bomb + " == dyn(1)}"
	}
	spec := configMap(data)
	var program *render.Program
	allocated, used := measure(func() { program, _ = render.Compile(spec) })
	t.Logf("%d compiled: %d KiB, %s, accepted: %t", n, allocated>>10, used, program != nil)
	g.Expect(allocated).To(BeNumerically("<", maxMemory))
	g.Expect(used).To(BeNumerically("<", maxDuration))
	if program == nil {
		return false
	}
	for _, fill := range []string{"a", "世", ","} {
		in := largest(fill)
		var err error
		allocated, used = measure(func() { _, err = program.Render(context.Background(), in) })
		t.Logf("rendered with %s: %d KiB, %s, %.100v", fill, allocated>>10, used, err)
		g.Expect(allocated).To(BeNumerically("<", maxMemory))
		g.Expect(used).To(BeNumerically("<", maxDuration))
	}
	return true
}

func TestLimits(t *testing.T) {
	for name, c := range map[string]struct {
		data   map[string]any
		change func(in *render.Input)
		reason string
	}{
		"largest input": {map[string]any{"x": "${ns.labels.size() + ns.annotations.size()}"}, nil, ""},
		"long string": {
			map[string]any{"x": "${params.a.replace('a', '" + strings.Repeat("b", 65) + "')}"}, nil, v1alpha1.ReasonOutputTooLarge,
		},
		"long text": {
			map[string]any{"x": strings.Repeat("${params.a}", 65)}, nil, v1alpha1.ReasonOutputTooLarge,
		},
		"long variable": {
			map[string]any{"x": "${variables.long.size()}"}, nil, v1alpha1.ReasonOutputTooLarge,
		},
		"all objects": {
			map[string]any{"x": repeated("${params.a.replace('a', '"+strings.Repeat("b", 60)+"')}", 18)}, nil,
			v1alpha1.ReasonOutputTooLarge,
		},
		"static objects": {
			map[string]any{"x": strings.Repeat("b", 1<<20)}, nil, v1alpha1.ReasonOutputTooLarge,
		},
		"long annotation": {
			map[string]any{"x": "${ns.annotations.size()}"},
			func(in *render.Input) { in.Namespace.Annotations["x"] = strings.Repeat("a", 4097) }, v1alpha1.ReasonInputTooLarge,
		},
		"many annotations": {
			map[string]any{"x": "${ns.?annotations.hasValue()}"},
			func(in *render.Input) {
				for i := range 300 {
					in.Namespace.Annotations[strconv.Itoa(i)] = ""
				}
			}, v1alpha1.ReasonInputTooLarge,
		},
		"unused annotation": {
			map[string]any{"x": "${ns.labels.size()}"},
			func(in *render.Input) { in.Namespace.Annotations["x"] = strings.Repeat("a", 200_000) }, "",
		},
		"annotation of kubectl": {
			map[string]any{"x": "${ns.annotations.size()}"},
			func(in *render.Input) {
				in.Namespace.Annotations[corev1.LastAppliedConfigAnnotation] = strings.Repeat("a", 200_000)
			}, "",
		},
		"long user": {
			map[string]any{"x": "${requestedBy}"},
			func(in *render.Input) { in.RequestedBy += "a" }, v1alpha1.ReasonInputTooLarge,
		},
		"long parameter": {
			map[string]any{"x": "${params.b}"},
			func(in *render.Input) { in.Parameters["b"] += "a" }, v1alpha1.ReasonInvalidParameter,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			spec := configMap(c.data)
			if name == "long variable" {
				spec.Variables = []v1alpha1.TemplateVariable{{
					Name: "long", Expression: "params.a.replace('a', '" + strings.Repeat("b", 65) + "')",
				}}
			}
			in := largest("a")
			if c.change != nil {
				c.change(&in)
			}
			objects, err := compile(t, spec).Render(context.Background(), in)
			if c.reason == "" {
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(objects).To(HaveLen(1))
				return
			}
			g.Expect(err).To(HaveField("Reason", c.reason), "%.200v", err)
			g.Expect(objects).To(BeNil())
		})
	}
}

func repeated(value string, n int) []any {
	result := make([]any, n)
	for i := range result {
		result[i] = value
	}
	return result
}

func TestTemplateLimits(t *testing.T) {
	objects := func(n int) *v1alpha1.NamespaceTemplateSpec {
		spec := &v1alpha1.NamespaceTemplateSpec{}
		for i := range n {
			name := strconv.Itoa(i)
			spec.Objects = append(spec.Objects, v1alpha1.TemplateObject{
				Name: name, SourceRef: &v1alpha1.TemplateSourceReference{Kind: "Secret", Name: name},
			})
		}
		return spec
	}
	forEach := func(maxItems, n int) *v1alpha1.NamespaceTemplateSpec {
		source := fmt.Sprintf("parameters: [{name: list, type: List, maxItems: %d}]\nobjects:\n", maxItems)
		for i := range n {
			source += fmt.Sprintf("- {name: x%[1]d, forEach: list, template: {apiVersion: v1, kind: ConfigMap, "+
				"metadata: {name: \"%[1]d-${item}\"}, data: {x: \"${item}\"}}}\n", i)
		}
		return parse(t, source)
	}
	for name, c := range map[string]struct {
		spec *v1alpha1.NamespaceTemplateSpec
		want int
	}{
		"most elements": {forEach(32, 4), 0},
		"many elements": {forEach(32, 5), 1},

		"most objects":     {objects(128), 0},
		"many objects":     {objects(200), 1},
		"most expressions": {configMap(map[string]any{"x": repeated("${1}", 512)}), 0},
		"many expressions": {configMap(map[string]any{"x": repeated("${1}", 513)}), 1},
		"long expression":  {configMap(map[string]any{"x": "${" + strings.Repeat(" ", 4096) + "1}"}), 1},
		"long expressions": {configMap(map[string]any{"x": repeated("${"+strings.Repeat(" ", 4000)+"1}", 9)}), 1},
		"many errors":      {configMap(map[string]any{"x": repeated("${x}", 500)}), 10},
	} {
		t.Run(name, func(t *testing.T) {
			_, errs := render.Compile(c.spec)
			NewWithT(t).Expect(errs).To(HaveLen(c.want))
		})
	}
}

func TestInterrupt(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	program := compile(t, configMap(map[string]any{"x": "${params.a.split('').all(c, c != 'z')}"}))
	objects, err := program.Render(ctx, largest("a"))
	g.Expect(err).To(MatchError(context.Canceled))
	g.Expect(objects).To(BeNil())
}
