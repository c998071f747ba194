// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/internal/template/render"
)

func TestCheckManifest(t *testing.T) {
	for name, c := range map[string]struct{ manifest, field string }{
		"copy of a Secret":        {"{apiVersion: v1, kind: Secret, metadata: {name: a, namespace: shop}, type: Opaque, data: {a: YQ==}}", ""},
		"name of a Role":          {"{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: 'system:a', namespace: shop}}", ""},
		"label key in upper case": {"{apiVersion: v1, kind: A, metadata: {name: a, namespace: shop, labels: {A/B: c}}}", "metadata.labels"},
		"nothing":                 {"{}", "kind"},
		"other namespace":         {"{apiVersion: v1, kind: A, metadata: {name: a, namespace: kube-system}}", "metadata.namespace"},
		"no namespace":            {"{apiVersion: v1, kind: A, metadata: {name: a}}", "metadata.namespace"},
		"uid":                     {"{apiVersion: v1, kind: A, metadata: {name: a, namespace: shop, uid: x}}", "metadata.uid"},
		"list":                    {"{apiVersion: v1, kind: SecretList, metadata: {name: a, namespace: shop}, items: []}", "items"},
		"label is a number":       {"{apiVersion: v1, kind: A, metadata: {name: a, namespace: shop, labels: {a: 1}}}", "metadata.labels.a"},
		"labels is a list":        {"{apiVersion: v1, kind: A, metadata: {name: a, namespace: shop, labels: []}}", "metadata.labels"},
		"subresource":             {"{apiVersion: v1, kind: pods/exec, metadata: {name: a, namespace: shop}}", "kind"},
		"own label":               {"{apiVersion: v1, kind: A, metadata: {name: a, namespace: shop, labels: {nslifecycle.dev/template: x}}}", `metadata.labels["nslifecycle.dev/template"]`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			manifest := &unstructured.Unstructured{}
			g.Expect(yaml.Unmarshal([]byte(c.manifest), &manifest.Object)).To(Succeed())
			err := render.CheckManifest(manifest, "shop")
			if c.field == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(c.field + ":")))
			}
		})
	}
	manifest := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "A", "metadata": map[string]any{"name": "a"},
	}}
	NewWithT(t).Expect(render.CheckManifest(manifest, "")).NotTo(Succeed())
}
