// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

// parsed returns the object with the fields of a YAML mapping.
func parsed(g *WithT, text string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	body, err := yaml.YAMLToJSON([]byte("{apiVersion: v1, kind: Test, " + text[1:]))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(object.UnmarshalJSON(body)).To(Succeed())
	return object
}

func TestDifferences(t *testing.T) {
	tests := map[string]struct {
		manifest, applied string
		// fields are those of the template in the managedFields.
		fields string
		want   []string
	}{
		"equal":                       {manifest: "{data: {a: x}}", applied: "{data: {a: x}}"},
		"another value":               {manifest: "{data: {level: x, other: o}}", applied: "{data: {level: z, other: o}}", want: []string{"data.level"}},
		"a key with dots":             {manifest: "{data: {a.b/c: x}}", applied: "{data: {a.b/c: y}}", want: []string{"data[a.b/c]"}},
		"a removed field":             {manifest: "{spec: {hard: {pods: 5, services: 3}}}", applied: "{spec: {hard: {pods: '5'}}}", want: []string{"spec.hard.services"}},
		"a removed map":               {manifest: "{spec: {hard: {pods: 5}}}", applied: "{}", want: []string{"spec"}},
		"added fields":                {manifest: "{data: {a: x}}", applied: "{data: {a: x, b: y}, status: {c: d}, metadata: {uid: u, labels: {l: m}}}"},
		"a changed label":             {manifest: "{metadata: {name: a, labels: {l: a}}}", applied: "{metadata: {name: a, labels: {l: b}}}", want: []string{"metadata.labels.l"}},
		"a removed annotation":        {manifest: "{metadata: {annotations: {a.b/c: a}}}", applied: "{metadata: {name: a}}", want: []string{"metadata.annotations[a.b/c]"}},
		"another type":                {manifest: "{spec: {a: {b: c}}}", applied: "{spec: {a: b}}", want: []string{"spec.a"}},
		"quantities":                  {manifest: "{hard: {cpu: 1000m, memory: 1024Mi, pods: 5, limit: 0.5}}", applied: "{hard: {cpu: '1', memory: 1Gi, pods: '5', limit: 500m}}"},
		"another quantity":            {manifest: "{hard: {cpu: 1000m}}", applied: "{hard: {cpu: '2'}}", want: []string{"hard.cpu"}},
		"durations, times and base64": {manifest: `{a: 60m, b: "2024-01-01T01:00:00+01:00", c: "YW\nJj"}`, applied: `{a: 1h0m0s, b: "2024-01-01T00:00:00Z", c: YWJj}`},
		"integers and floats":         {manifest: "{a: 1.0, b: 2}", applied: "{a: 1, b: 2.0}"},
		"omitted values":              {manifest: "{a: null, b: '', c: 0, d: false, e: {}, f: [], g: {h: {i: null}}}", applied: "{}"},
		"a default for an empty text": {manifest: "{roleRef: {apiGroup: ''}}", applied: "{roleRef: {apiGroup: rbac}}"},
		"a changed bool":              {manifest: "{a: false}", applied: "{a: true}", want: []string{"a"}},
		"a changed number":            {manifest: "{a: 0}", applied: "{a: 1}", want: []string{"a"}},
		"an associative list in another order, with defaults and an element of another client": {
			manifest: "{ports: [{port: 80}, {port: 443}]}", applied: "{ports: [{port: 443, protocol: TCP}, {port: 1}, {port: 80, protocol: TCP}]}",
			fields: `{"f:ports":{"k:{\"port\":80}":{".":{},"f:port":{}},"k:{\"port\":443}":{".":{},"f:port":{}}}}`,
		},
		"an element without one of its fields": {
			manifest: "{ports: [{port: 80, name: a}]}", applied: "{ports: [{port: 80, protocol: TCP}]}", want: []string{"ports[0].name"},
		},
		"a removed element":        {manifest: "{list: [a, b, c]}", applied: "{list: [c, a]}", want: []string{"list[1]"}},
		"an atomic list":           {manifest: "{subjects: [{name: a}]}", applied: "{subjects: [{name: a, apiGroup: rbac}]}", fields: `{"f:subjects":{}}`},
		"an added atomic element":  {manifest: "{subjects: [{name: a}]}", applied: "{subjects: [{name: a}, {name: b}]}", fields: `{"f:subjects":{}}`, want: []string{"subjects"}},
		"a reordered atomic list":  {manifest: "{args: [a, b]}", applied: "{args: [b, a]}", fields: `{"f:args":{}}`, want: []string{"args[0]", "args[1]"}},
		"a filled empty list":      {manifest: "{spec: {ingress: []}}", applied: "{spec: {ingress: [{}]}}", fields: `{"f:spec":{"f:ingress":{}}}`, want: []string{"spec.ingress"}},
		"a list in an atomic list": {manifest: "{rules: [{verbs: [get]}]}", applied: "{rules: [{verbs: [get, list]}]}", fields: `{"f:rules":{}}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			applied := parsed(g, test.applied)
			if test.fields != "" {
				applied.SetManagedFields([]metav1.ManagedFieldsEntry{claim("nslifecycle-template:a", test.fields)})
			}
			g.Expect(Differences(parsed(g, test.manifest), applied, "a")).To(Equal(test.want))
		})
	}
}

func TestReportDifference(t *testing.T) {
	o := &object{ObjectSnapshot: NewMetadata(template.KindLabel, "settings", "", &corev1.Namespace{})}
	key := o.Key()
	o.recorded = &template.ObjectState{Kind: key.Kind, Name: key.Name, IsDifferent: true}
	c := &conclusion{Plan: Plan{Snapshot: Snapshot{Now: start}}}
	report := func() []template.Problem {
		t := &templatePlan{NamespaceTemplate: &v1alpha1.NamespaceTemplate{}}
		c.reportDifference(t, o)
		return t.outcome.Problems
	}
	g := NewWithT(t)
	mustCompare := func() bool { return c.Memory.mustCompare(o.recorded, c.Now) }
	g.Expect(mustCompare()).To(BeTrue(), "after a restart, the fields are unknown")
	g.Expect(report()).To(HaveExactElements(HaveField("Message", ContainSubstring("unknown fields"))), "no dry run is possible")
	c.recordDifference(o, []string{"a", "b", "c", "d", "e", "f"})
	g.Expect(mustCompare()).To(BeFalse())
	problems := report()
	g.Expect(problems).To(HaveExactElements(And(HaveField("Reason", v1alpha1.ReasonFieldsDiffer),
		HaveField("Message", ContainSubstring("a, b, c, d, e, and 1 more")))))
	g.Expect(template.IsIncomplete(problems)).To(BeFalse())
	g.Expect(Outcome{Templates: []TemplateOutcome{{Problems: problems}}}.WaitsFor()).To(BeNil())
	c.Now = start.Add(compareInterval)
	g.Expect(mustCompare()).To(BeTrue())
	c.recordDifference(o, nil)
	g.Expect(o.recorded.IsDifferent).To(BeFalse())
	g.Expect(mustCompare()).To(BeFalse())
	g.Expect(report()).To(BeEmpty())
	g.Expect(c.Memory.Differences).To(BeEmpty())
}
