// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package confinement

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var crds = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// installCRD installs a type named "namespaces" and returns a function that makes objects of it.
func installCRD(ctx context.Context) func(namespace, name string) client.Object {
	GinkgoHelper()
	const group = "namespaced.example.com"
	crd := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "namespaces." + group},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced", "names": map[string]any{"plural": "namespaces", "singular": "namespace", "kind": "Namespace"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
			}},
		},
	}}
	crd.SetGroupVersionKind(crds)
	Expect(admin.Create(ctx, crd)).To(Succeed())
	Eventually(func(g Gomega) {
		now := crd.DeepCopy()
		g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(crd), now)).To(Succeed())
		conditions, _, _ := unstructured.NestedSlice(now.Object, "status", "conditions")
		g.Expect(conditions).To(ContainElement(And(
			HaveKeyWithValue("type", string(apiextensionsv1.Established)), HaveKeyWithValue("status", "True"))))
	}).WithContext(ctx).Should(Succeed())
	return func(namespace, name string) client.Object {
		object := &unstructured.Unstructured{Object: map[string]any{}}
		object.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Namespace"})
		object.SetNamespace(namespace)
		object.SetName(name)
		return object
	}
}

func deleteCRD(ctx context.Context, name string) error {
	crd := &unstructured.Unstructured{Object: map[string]any{}}
	crd.SetGroupVersionKind(crds)
	crd.SetName(name)
	return operator.Delete(ctx, crd)
}
