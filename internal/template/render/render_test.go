// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template/render"
)

// teamTemplate is a typical template with four objects.
const teamTemplate = `
serviceAccountName: provisioner
parameters:
- {name: size, enum: [s, l], default: s}
- {name: owner, required: true}
variables:
- {name: cpu, expression: "params.size == 'l' ? 40 : 4"}
objects:
- name: admin
  template:
    apiVersion: rbac.authorization.k8s.io/v1
    kind: RoleBinding
    metadata: {name: creator}
    roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
    subjects: ["${subject(requestedBy)}"]
- name: policy
  template:
    apiVersion: networking.k8s.io/v1
    kind: NetworkPolicy
    metadata: {name: default-deny}
    spec: {podSelector: {}, ingress: [], policyTypes: [Ingress]}
- name: quota
  lock: All
  template:
    apiVersion: v1
    kind: ResourceQuota
    metadata: {name: team, labels: {owner: "${params.owner}"}}
    spec: {hard: {requests.cpu: "${variables.cpu}", pods: "${string(variables.cpu * 10)}"}}
- name: limits
  template:
    apiVersion: v1
    kind: LimitRange
    metadata: {name: "limits-${ns.name}"}
    spec: {limits: [{type: Container, default: {memory: "${quantity('1Gi')}"}}]}
- name: pull-secret
  sourceRef: {kind: Secret, name: regcred}
- name: dashboards
  includeWhen: "params.size == 'l'"
  namespaceState: Initialized
  template: {apiVersion: v1, kind: ConfigMap, metadata: {name: dashboards}}
`

func parse(t testing.TB, source string) *v1alpha1.NamespaceTemplateSpec {
	t.Helper()
	spec := &v1alpha1.NamespaceTemplateSpec{}
	if err := yaml.UnmarshalStrict([]byte(source), spec); err != nil {
		t.Fatal(err)
	}
	return spec
}

func compile(t testing.TB, spec *v1alpha1.NamespaceTemplateSpec) *render.Program {
	t.Helper()
	program, errs := render.Compile(spec)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	return program
}

// configMap returns a template with one ConfigMap that contains the data.
func configMap(data map[string]any) *v1alpha1.NamespaceTemplateSpec {
	raw, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "map"}, "data": data,
	})
	if err != nil {
		panic(err)
	}
	return &v1alpha1.NamespaceTemplateSpec{
		Parameters: []v1alpha1.TemplateParameter{{Name: "a"}, {Name: "b"}},
		Objects:    []v1alpha1.TemplateObject{{Name: "map", Template: &runtime.RawExtension{Raw: raw}}},
	}
}

func input() render.Input {
	return render.Input{
		Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name:        "shop",
			Labels:      map[string]string{"team": "red", "nslifecycle.dev/initializing": "true"},
			Annotations: map[string]string{"users": "ann,bob", "nslifecycle.dev/applied-templates": "{}"},
		}},
		Parameters:  map[string]string{"size": "s", "owner": "ann"},
		RequestedBy: "ann@example.com",
	}
}

func TestRenderTeam(t *testing.T) {
	g := NewWithT(t)
	objects, err := compile(t, parse(t, teamTemplate)).Render(context.Background(), input())
	g.Expect(err).NotTo(HaveOccurred())

	var names []string
	for _, object := range objects {
		names = append(names, object.Name)
		g.Expect(object.Manifest.GetNamespace()).To(Equal("shop"))
	}
	g.Expect(names).To(Equal([]string{"pull-secret", "limits", "quota", "policy", "admin"}))
	g.Expect(objects[0].Manifest.Object).To(Equal(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "regcred", "namespace": "shop"},
	}))
	g.Expect(objects[0].IsCopy).To(BeTrue())
	g.Expect(objects[0].Manifest.GetName()).To(Equal("regcred"))
	g.Expect(objects[1].Manifest.Object).To(Equal(map[string]any{
		"apiVersion": "v1", "kind": "LimitRange",
		"metadata": map[string]any{"name": "limits-shop", "namespace": "shop"},
		"spec": map[string]any{"limits": []any{map[string]any{
			"type": "Container", "default": map[string]any{"memory": "1Gi"},
		}}},
	}))
	g.Expect(objects[2].Locked).To(BeTrue())
	g.Expect(objects[2].Manifest.Object).To(HaveKeyWithValue("spec", map[string]any{
		"hard": map[string]any{"requests.cpu": int64(4), "pods": "40"},
	}))
	g.Expect(objects[4].Manifest.Object).To(HaveKeyWithValue("subjects", []any{map[string]any{
		"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "ann@example.com",
	}}))

	large := input()
	large.Parameters["size"] = "l"
	objects, err = compile(t, parse(t, teamTemplate)).Render(context.Background(), large)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(objects).To(HaveLen(6))
	g.Expect(objects[1].Name).To(Equal("dashboards"))
	g.Expect(objects[1].When).To(Equal(v1alpha1.NamespaceStateInitialized))
}

func TestValues(t *testing.T) {
	type values = map[string]any
	for name, c := range map[string]struct {
		value any
		want  any
	}{
		"text":                  {"a ${ns.name} b ${1} ${true} ${1.5} ${quantity('1500m')}", "a shop b 1 true 1.5 1500m"},
		"string":                {"${ns.labels.team}", "red"},
		"int":                   {"${40}", int64(40)},
		"uint":                  {"${40u}", int64(40)},
		"double":                {"${2.5}", 2.5},
		"bool":                  {"${1 < 2}", true},
		"null":                  {"${null}", nil},
		"quantity":              {"${quantity('1Gi').add(quantity('1Gi'))}", "2Gi"},
		"list":                  {"${[1, 2].map(x, x * 2)}", []any{int64(2), int64(4)}},
		"map":                   {"${{'a': [ns.name]}}", values{"a": []any{"shop"}}},
		"two variables":         {"${ns.labels.transformList(k, v, k + '=' + v)}", []any{"team=red"}},
		"map of labels":         {"${ns.labels.transformMap(k, v, v + '!')}", values{"team": "red!"}},
		"no labels of ours":     {"${ns.labels.size() + ns.annotations.size()}", int64(2)},
		"brace in string":       {"${'}' + \"}{\"}", "}}{"},
		"raw string":            {`${r'\' + '}'}`, `\}`},
		"triple quotes":         {`${'''it's }''' + "x"}`, "it's }x"},
		"escaped quote":         {`${'\'}'}`, "'}"},
		"comment":               {"${1 // }\n + 1}", int64(2)},
		"escape":                {"$${ns.name} $ $$ ${ns.name}", "${ns.name} $ $$ shop"},
		"escape after dollar":   {"$$${ns.name}", "$${ns.name}"},
		"value that looks so":   {"${'$' + '{ns.name}'}", "${ns.name}"},
		"empty":                 {"", ""},
		"optional":              {[]any{"${ns.labels[?'team']}", "${ns.labels[?'other']}"}, []any{"red"}},
		"dropped key":           {values{"a": "${optional.none()}", "b": "1"}, values{"b": "1"}},
		"optional with default": {"${ns.labels[?'other'].orValue('none')}", "none"},
		"split and join":        {"${ns.annotations['users'].split(',').map(u, u.upperAscii()).join('+')}", "ANN+BOB"},
		"subjects":              {"${ns.annotations['users'].split(',').map(u, subject(u).name)}", []any{"ann", "bob"}},
		"service account": {
			"${subject('system:serviceaccount:ci:bot')}",
			values{"kind": "ServiceAccount", "namespace": "ci", "name": "bot"},
		},
		"not a service account":   {"${subject('system:serviceaccount:a:b:c').kind}", "User"},
		"base64":                  {"${base64.encode(bytes('a' + ns.name))}", "YXNob3A="},
		"format":                  {"${'%s-%d'.format([ns.name, 7])}", "shop-7"},
		"regular expression":      {"${ns.name.matches('^[a-z]{1,63}$') && ns.name.find('o.') == 'op'}", true},
		"sets":                    {"${sets.contains(['a', 'b'], ['a'])}", true},
		"range":                   {"${lists.range(2).map(i, 'z' + string(i))}", []any{"z0", "z1"}},
		"nested lists":            {"${[[1], [2, 3]].flatten()}", []any{int64(1), int64(2), int64(3)}},
		"dyn":                     {"${dyn(ns.name)}", "shop"},
		"parameter without value": {"${params.a}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			program := compile(t, configMap(map[string]any{"x": c.value}))
			objects, err := program.Render(context.Background(), input())
			g.Expect(err).NotTo(HaveOccurred())
			if c.want == nil {
				g.Expect(objects[0].Manifest.Object["data"]).To(HaveKeyWithValue("x", BeNil()))
			} else {
				g.Expect(objects[0].Manifest.Object["data"]).To(HaveKeyWithValue("x", Equal(c.want)))
			}
		})
	}
}

func TestCompileErrors(t *testing.T) {
	const object = "\nobjects:\n- name: x\n  template: "
	const meta = "{apiVersion: v1, kind: ConfigMap, metadata: {name: x}"
	const lists, each = "parameters: [{name: teams, type: List, maxItems: 3}]\n", "\nobjects:\n- name: x\n  forEach: teams\n  template: "
	for name, c := range map[string]struct{ spec, path, text string }{
		"misspelt parameter": {
			"parameters: [{name: size}]" + object + meta + `, data: {a.b: "${ns.name} ${params.sise}"}}`,
			`spec.objects[0].template.data["a.b"]`, "line 1, column 7: undefined field 'sise'",
		},
		"parameter of a label": {
			"metadata: {labels: {a: '${params.typo}'}}" + object + meta + "}", `spec.metadata.labels[a]`, `no parameter "typo"`,
		},
		"expression in an annotation": {
			"metadata: {annotations: {a: '${ns.name}'}}" + object + meta + "}", `spec.metadata.annotations[a]`, "${ns.name} is not supported",
		},
		"label of the own selector": {
			"namespaceSelector: {matchExpressions: [{key: a, operator: Exists}]}\nmetadata: {labels: {a: b}}" + object + meta + "}",
			`spec.metadata.labels[a]`, "the selector of the template depends on this label",
		},
		"later variable": {
			`variables: [{name: a, expression: variables.b}, {name: b, expression: "1"}]` + object + meta + `}`,
			"spec.variables[0].expression", "undefined field 'b'",
		},
		"type of a variable": {
			`variables: [{name: a, expression: "1"}]` + object + meta + `, data: {x: "${variables.a + 'b'}"}}`,
			"spec.objects[0].template.data.x", "no matching overload",
		},
		"second line":    {object + meta + `, data: {x: "${1 +\n nothing}"}}`, "spec.objects[0].template.data.x", "line 2, column 2: "},
		"unterminated":   {object + meta + `, data: {x: "a ${ns.name"}}`, "spec.objects[0].template.data.x", "no matching"},
		"empty":          {object + meta + `, data: {x: "${}"}}`, "spec.objects[0].template.data.x", "Syntax error"},
		"key":            {object + meta + `, data: {"${ns.name}": x}}`, "spec.objects[0].template.data", "keys cannot"},
		"whole object":   {object + meta + `, data: {x: "${params}"}}`, "spec.objects[0].template.data.x", "one of its fields"},
		"list in a text": {object + meta + `, data: {x: "a ${[1]}"}}`, "spec.objects[0].template.data.x", "text"},
		"bytes":          {object + meta + `, data: {x: "${b'a'}"}}`, "spec.objects[0].template.data.x", "bytes"},
		"time":           {object + meta + `, data: {x: "${timestamp('2020-01-01T00:00:00Z')}"}}`, "spec.objects[0].template.data.x", "timestamp is not available"},
		"message":        {object + meta + `, data: {x: "${google.protobuf.Int64Value{value: 1}}"}}`, "spec.objects[0].template.data.x", "message literals"},
		"two types":      {object + meta + `, data: {x: "${[1, 'a']}"}}`, "spec.objects[0].template.data.x", "line 1"},
		"includeWhen": {
			"\nobjects:\n- name: x\n  includeWhen: ns.name\n  template: " + meta + "}", "spec.objects[0].includeWhen", "bool",
		},
		"no kind":            {object + "{apiVersion: v1, metadata: {name: x}}", "spec.objects[0].template.kind", "kind"},
		"expression as kind": {object + `{apiVersion: v1, kind: "${ns.name}", metadata: {name: x}}`, "spec.objects[0].template.kind", "kind"},
		"apiVersion":         {object + `{apiVersion: a/b/c, kind: A, metadata: {name: x}}`, "spec.objects[0].template.apiVersion", "version"},
		"empty group":        {object + `{apiVersion: /v1, kind: A, metadata: {name: x}}`, "spec.objects[0].template.apiVersion", "version"},
		"own group":          {object + `{apiVersion: nslifecycle.dev/v1alpha1, kind: NamespaceTemplate, metadata: {name: x}}`, "spec.objects[0].template.apiVersion", "not permitted"},
		"list":               {object + `{apiVersion: v1, kind: List, metadata: {name: x}, items: []}`, "spec.objects[0].template.items", "list"},
		"status":             {object + meta + `, status: {}}`, "spec.objects[0].template.status", "status"},
		"no name":            {object + `{apiVersion: v1, kind: A, metadata: {}}`, "spec.objects[0].template.metadata.name", "empty"},
		"no metadata":        {object + `{apiVersion: v1, kind: A}`, "spec.objects[0].template.metadata.name", "Required"},
		"namespace":          {object + `{apiVersion: v1, kind: A, metadata: {name: x, namespace: kube-system}}`, "spec.objects[0].template.metadata.namespace", "sets the namespace"},
		"owner":              {object + `{apiVersion: v1, kind: A, metadata: {name: x, ownerReferences: []}}`, "spec.objects[0].template.metadata.ownerReferences", "only name"},
		"generateName":       {object + `{apiVersion: v1, kind: A, metadata: {name: x, generateName: x}}`, "spec.objects[0].template.metadata.generateName", "only name"},
		"own label":          {object + `{apiVersion: v1, kind: A, metadata: {name: x, labels: {nslifecycle.dev/locked: "true"}}}`, `spec.objects[0].template.metadata.labels["nslifecycle.dev/locked"]`, "reserved"},
		"own annotation":     {object + `{apiVersion: v1, kind: A, metadata: {name: x, annotations: {a.NSlifecycle.dev/b: "${ns.name}"}}}`, `spec.objects[0].template.metadata.annotations["a.NSlifecycle.dev/b"]`, "reserved"},
		"name":               {object + `{apiVersion: v1, kind: A, metadata: {name: a/b}}`, "spec.objects[0].template.metadata.name", "a/b"},
		"name of a role":     {object + `{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: a/b}}`, "spec.objects[0].template.metadata.name", "a/b"},
		"stringData":         {object + `{apiVersion: v1, kind: Secret, metadata: {name: x}, stringData: {}}`, "spec.objects[0].template.stringData", "base64.encode"},
		"duplicate":          {object + meta + "}\n- name: y\n  sourceRef: {kind: ConfigMap, name: x}", "spec.objects[1]", "same group"},
		"duplicate name":     {object + meta + "}\n- name: x\n  sourceRef: {kind: ConfigMap, name: y}", "spec.objects[1].name", "Duplicate"},
		"pattern":            {`parameters: [{name: a, pattern: "("}]` + object + meta + "}", "spec.parameters[0].pattern", "regular expression"},
		"large parameter": {
			"parameters: [{name: a, enum: [" + strings.Repeat(strings.Repeat("a", 1022)+", ", 16) + "b]}]" + object + meta + "}", "spec",
			"more than 16384",
		},
		"large pattern": {`parameters: [{name: a, pattern: ".{1000}.{1000}.{1000}"}]` + object + meta + "}", "spec.parameters[0].pattern", "instructions"},
		"default":       {`parameters: [{name: a, pattern: "^a", default: b}]` + object + meta + "}", "spec.parameters[0].default", "must match"},
		"default of a list": {
			`parameters: [{name: a, type: List, maxItems: 2, enum: [b], default: "b,c"}]` + object + meta + "}", "spec.parameters[0].default", `"c"`,
		},
		"repeated default of a list": {
			`parameters: [{name: a, type: List, maxItems: 2, default: "b,b"}]` + object + meta + "}", "spec.parameters[0].default", "repeated",
		},
		"list in a label of the namespace": {
			"parameters: [{name: a, type: List, maxItems: 2}]\nmetadata: {labels: {a: '${params.a}'}}" + object + meta + "}",
			"spec.metadata.labels[a]", "is a list",
		},
		"list as a string": {
			"parameters: [{name: a, type: List, maxItems: 2}]" + object + meta + `, data: {x: "${params.a + 'b'}"}}`,
			"spec.objects[0].template.data.x", "no matching overload",
		},
		"item without forEach": {object + meta + `, data: {x: "${item}"}}`, "spec.objects[0].template.data.x", "undeclared reference to 'item'"},
		"item in a variable": {
			"variables: [{name: a, expression: item}]" + object + meta + "}", "spec.variables[0].expression", "undeclared reference to 'item'",
		},
		"item in the metadata of all objects": {
			lists + "objectMetadata: {labels: {a: '${item}'}}" + each + "{apiVersion: v1, kind: ConfigMap, metadata: {name: '${item}'}}",
			"spec.objectMetadata.labels.a", "undeclared reference to 'item'",
		},
		"forEach over a string":             {"parameters: [{name: teams}]" + each + meta + "}", "spec.objects[0].forEach", "no parameter"},
		"forEach over an unknown parameter": {each + meta + "}", "spec.objects[0].forEach", "no parameter"},
		"forEach with a static name":        {lists + each + meta + "}", "spec.objects[0].forEach", "name must contain item"},
		"forEach with a name that depends on other values": {
			lists + each + `{apiVersion: v1, kind: ConfigMap, metadata: {name: "x${['a'].map(item, item)[0]}${ns.name}"}}`,
			"spec.objects[0].forEach", "name must contain item",
		},
		"forEach with a copy": {
			lists + "objects: [{name: x, forEach: teams, sourceRef: {kind: ConfigMap, name: y}}]",
			"spec.objects[0].forEach", "name must contain item",
		},
		"reserved key for all objects": {
			"objectMetadata: {annotations: {nslifecycle.dev/a: b}}" + object + meta + "}",
			`spec.objectMetadata.annotations["nslifecycle.dev/a"]`, "reserved",
		},
		"invalid label of all objects": {
			"objectMetadata: {labels: {a: 'b c'}}" + object + meta + "}", "spec.objectMetadata.labels.a", "b c",
		},
		"optMap": {object + meta + `, data: {x: "${optional.of(1).optMap(v, v)}"}}`, "spec.objects[0].template.data.x", "optMap is not available"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			program, errs := render.Compile(parse(t, c.spec))
			g.Expect(program).To(BeNil())
			g.Expect(errs).To(HaveLen(1), "%v", errs)
			g.Expect(errs[0].Field).To(Equal(c.path))
			g.Expect(errs[0].Error()).To(ContainSubstring(c.text))
		})
	}
}

func TestRenderErrors(t *testing.T) {
	for name, c := range map[string]struct {
		value  string
		reason string
	}{
		"missing label":    {"${ns.labels.other}", v1alpha1.ReasonExpressionFailed},
		"division by zero": {"${1 / ns.labels.size() - 1 / (ns.labels.size() - 1)}", v1alpha1.ReasonExpressionFailed},
		"no user":          {"${subject(params.a)}", v1alpha1.ReasonExpressionFailed},
		"not finite":       {"${double(ns.labels.size()) / 0.0}", v1alpha1.ReasonExpressionFailed},
		"large uint":       {"${18446744073709551615u}", v1alpha1.ReasonExpressionFailed},
		"key":              {"${dyn({1: 2})}", v1alpha1.ReasonExpressionFailed},
		"nested optional":  {"${[dyn(optional.of(1))]}", v1alpha1.ReasonExpressionFailed},
		"type":             {"${dyn(bytes(ns.name))}", v1alpha1.ReasonExpressionFailed},
		"object":           {"${dyn([1])} a", v1alpha1.ReasonExpressionFailed},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			objects, err := compile(t, configMap(map[string]any{"x": c.value})).Render(context.Background(), input())
			g.Expect(objects).To(BeNil())
			failure := &render.Error{}
			g.Expect(err).To(BeAssignableToTypeOf(failure))
			g.Expect(err).To(HaveField("Reason", c.reason))
			g.Expect(err).To(HaveField("Object", "map"))
			g.Expect(err.Error()).To(ContainSubstring("spec.objects[0].template.data.x"))
		})
	}
}

func TestMissingKeys(t *testing.T) {
	for name, c := range map[string]struct{ expression, value, want string }{
		"an empty parameter": {
			expression: `{"s": 1}[params.size]`,
			want:       `variable cpu: no such key "" in {"s": 1}[params.size]; parameter size is "": see the label corp.example.com/size`,
		},
		"another value": {
			expression: `{"s": 1}[params.size]`, value: "xl",
			want: `variable cpu: no such key "xl" in {"s": 1}[params.size]; parameter size is "xl": see the label corp.example.com/size`,
		},
		"a label": {expression: "ns.labels.cpu", want: `variable cpu: no such key "cpu" in ns.labels.cpu`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			spec := configMap(map[string]any{"x": "${variables.cpu}"})
			spec.Parameters = append(spec.Parameters, v1alpha1.TemplateParameter{Name: "size", LabelKey: "corp.example.com/size"})
			spec.Variables = append(spec.Variables, v1alpha1.TemplateVariable{Name: "cpu", Expression: c.expression})
			in := input()
			in.Parameters["size"] = c.value
			_, err := compile(t, spec).Render(context.Background(), in)
			g.Expect(err).To(MatchError(c.want))
		})
	}
}

func TestDynamicNames(t *testing.T) {
	for name, c := range map[string]struct {
		metadata string
		value    string
		valid    bool
	}{
		"name":                 {`{name: "${params.a}"}`, "web", true},
		"name with a slash":    {`{name: "${params.a}"}`, "../secrets", false},
		"empty name":           {`{name: "${params.a}"}`, "", false},
		"long name":            {`{name: "${params.a}"}`, strings.Repeat("a", 254), false},
		"name is a number":     {`{name: "${1}"}`, "", false},
		"no name":              {`{name: "${optional.none()}"}`, "", false},
		"label":                {`{name: x, labels: {a: "${params.a}"}}`, "web", true},
		"label with a newline": {`{name: x, labels: {a: "${params.a}"}}`, "a\nb: c", false},
		"long label":           {`{name: x, labels: {a: "${params.a}"}}`, strings.Repeat("a", 1000), false},
		"labels":               {`{name: x, labels: "${{params.a: 'b'}}"}`, "web", true},
		"own label":            {`{name: x, labels: "${{params.a: 'b'}}"}`, "nslifecycle.dev/locked", false},
		"metadata":             {`"${{'name': params.a}}"`, "web", false},
		"annotations":          {`{name: x, annotations: {a: "${params.a}"}}`, "'\"\n${ns.name} }: {", true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			program, errs := render.Compile(parse(t, `
parameters: [{name: a}]
objects: [{name: x, template: {apiVersion: v1, kind: ConfigMap, metadata: `+c.metadata+`}}]`))
			if len(errs) > 0 {
				g.Expect(c.valid).To(BeFalse(), "%v", errs)
				return
			}
			in := input()
			in.Parameters = map[string]string{"a": c.value}
			objects, err := program.Render(context.Background(), in)
			if c.valid {
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(objects).To(HaveLen(1))
			} else {
				g.Expect(err).To(HaveField("Reason", v1alpha1.ReasonInvalidObject))
			}
		})
	}
}

func TestAlternatives(t *testing.T) {
	g := NewWithT(t)
	program := compile(t, parse(t, `
parameters: [{name: a}]
objects:
- {name: empty, includeWhen: "params.a != 'copy'", template: {apiVersion: v1, kind: Secret, metadata: {name: s}}}
- {name: copy, includeWhen: "params.a != 'empty'", sourceRef: {kind: Secret, name: s}}`))
	for value, want := range map[string]string{"empty": "empty", "copy": "copy"} {
		objects, err := program.Render(context.Background(),
			render.Input{Namespace: input().Namespace, Parameters: map[string]string{"a": value}})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(objects).To(ConsistOf(HaveField("Name", want)))
	}
	_, err := program.Render(context.Background(), render.Input{Namespace: input().Namespace})
	g.Expect(err).To(HaveField("Reason", v1alpha1.ReasonInvalidObject))
}

func BenchmarkRender(b *testing.B) {
	spec := parse(b, teamTemplate)
	spec.Objects = spec.Objects[:4]
	program, in := compile(b, spec), input()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := program.Render(context.Background(), in); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	spec := parse(b, teamTemplate)
	b.ReportAllocs()
	for b.Loop() {
		compile(b, spec)
	}
}
