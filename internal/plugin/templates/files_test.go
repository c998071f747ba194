// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

func TestReadInvalidTemplates(t *testing.T) {
	valid, err := os.ReadFile("testdata/team/template.yaml")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for name, test := range map[string]struct{ before, after, err string }{
		"unknown field":      {"serviceAccountName:", "account: x\n  serviceAccountName:", `unknown field "spec.account"`},
		"missing field":      {"  serviceAccountName: team\n", "", "spec.serviceAccountName: is required"},
		"value not in enum":  {"namespaceState: Initialized", "namespaceState: Later", "spec.objects[2].namespaceState: should be one of"},
		"wrong type":         {"lock: All", "lock: 1", "spec.objects[1].lock: must be of type string"},
		"pattern":            {"name: costCenter", "name: cost-center", "spec.parameters[1].name: should match"},
		"no template":        {"kind: NamespaceTemplate", "kind: Namespace", "exactly one NamespaceTemplate"},
		"two templates":      {"apiVersion", "apiVersion: nslifecycle.dev/v1alpha1\nkind: NamespaceTemplate\n---\napiVersion", "got 2"},
		"invalid YAML":       {"spec:", "spec: {", "failed to decode"},
		"invalid expression": {"params.size == 'l' ? 40", "params.siz == 'l' ? 40", "object quota: spec.objects[1].template.spec.hard.pods"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(string(valid)).To(ContainSubstring(test.before))
			template, err := ReadTemplate(Stdin, strings.NewReader(strings.Replace(string(valid), test.before, test.after, 1)))
			if err == nil {
				_, err = Compile(template)
			}
			g.Expect(err).To(MatchError(ContainSubstring(test.err)))
		})
	}
}

func TestReadBesideOtherObjects(t *testing.T) {
	g := NewWithT(t)
	valid, err := os.ReadFile("testdata/team/template.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	template, err := ReadTemplate(Stdin, strings.NewReader(
		"# A comment.\n---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: team}\n---\n"+string(valid)))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(template.Spec.Objects).NotTo(BeEmpty())
}

func TestParameters(t *testing.T) {
	for name, test := range map[string]struct {
		arguments []string
		err       string
	}{
		"values with separators": {arguments: []string{"a=x=y,z", "b="}},
		"no value":               {arguments: []string{"a"}, err: `invalid parameter "a"`},
		"no name":                {arguments: []string{"=a"}, err: "invalid parameter"},
		"invalid name":           {arguments: []string{"a-b=c"}, err: "invalid parameter"},
		"given twice":            {arguments: []string{"a=1", "a=1"}, err: "more than once"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			values, err := ParseParameters(test.arguments)
			if test.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(values).To(Equal(map[string]string{"a": "x=y,z", "b": ""}))
		})
	}
}

func TestSetParameters(t *testing.T) {
	g := NewWithT(t)
	template := readTeam(g)
	namespace := &corev1.Namespace{}
	g.Expect(template.SetParameters(namespace, map[string]string{"size": "l", "costCenter": "a1"})).To(Succeed())
	g.Expect(namespace.Annotations).To(Equal(map[string]string{"parameter.nslifecycle.dev/size": "l"}))
	g.Expect(namespace.Labels).To(Equal(map[string]string{"example.com/cost-center": "a1"}))
	g.Expect(template.SetParameters(namespace, map[string]string{"zone": "a"})).
		To(MatchError(ContainSubstring("no parameter zone; its parameters: size, costCenter")))
}

func readTeam(g Gomega) *Template {
	object, err := ReadTemplate("testdata/team/template.yaml", nil)
	g.Expect(err).NotTo(HaveOccurred())
	template, err := Compile(object)
	g.Expect(err).NotTo(HaveOccurred())
	return template
}
