// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

func TestIsEqual(t *testing.T) {
	object := func(changes ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
		result := wantConfigMap("config", "").Manifest.DeepCopy()
		result.Object["data"] = map[string]any{"key": "a"}
		for _, change := range changes {
			change(result)
		}
		return result
	}
	with := func(value any, path ...string) func(*unstructured.Unstructured) {
		return func(object *unstructured.Unstructured) {
			if err := unstructured.SetNestedField(object.Object, value, path...); err != nil {
				t.Fatal(err)
			}
		}
	}
	tests := map[string]struct {
		a, b *unstructured.Unstructured
		want bool
	}{
		"the same": {object(), object(), true},
		"fields of the API server": {
			object(with("1", "metadata", "resourceVersion"), with(int64(1), "metadata", "generation")),
			object(with("2", "metadata", "resourceVersion"), with([]any{}, "metadata", "managedFields")), true,
		},
		"own keys of an earlier namespace": {
			object(with("earlier", "metadata", "annotations", v1alpha1.AnnotationNamespaceUID)),
			object(with("now", "metadata", "annotations", v1alpha1.AnnotationNamespaceUID)), true,
		},
		"own keys are added": {
			object(), object(with("a", "metadata", "labels", v1alpha1.LabelManagedByTemplate), with("true", "metadata", "labels", v1alpha1.LabelLocked),
				with("now", "metadata", "annotations", v1alpha1.AnnotationNamespaceUID)), true,
		},
		"another value":      {object(), object(with("b", "data", "key")), false},
		"another label":      {object(), object(with("b", "metadata", "labels", "team")), false},
		"another annotation": {object(with("a", "metadata", "annotations", "a")), object(with("b", "metadata", "annotations", "a")), false},
		"an added field":     {object(), object(with(true, "immutable")), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(IsEqual(test.a, test.b)).To(Equal(test.want))
		})
	}
}
