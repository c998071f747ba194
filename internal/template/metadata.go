// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// FieldManagerPrefix is the prefix of the field managers of all templates.
const FieldManagerPrefix = "nslifecycle-template:"

// FieldManager returns the field manager of a template.
func FieldManager(template string) string { return FieldManagerPrefix + template }

// WithOwnMetadata returns a copy of a manifest with the labels and annotations of the operator.
func WithOwnMetadata(
	template string, namespace *corev1.Namespace, manifest *unstructured.Unstructured, isLocked bool,
) *unstructured.Unstructured {
	manifest = manifest.DeepCopy()
	labels, annotations := maps.Collect(maps.All(manifest.GetLabels())), maps.Collect(maps.All(manifest.GetAnnotations()))
	labels[v1alpha1.LabelManagedByTemplate] = template
	if isLocked {
		labels[v1alpha1.LabelLocked] = "true"
	}
	annotations[v1alpha1.AnnotationNamespaceUID] = string(namespace.UID)
	manifest.SetLabels(labels)
	manifest.SetAnnotations(annotations)
	return manifest
}

// ManifestOf returns the manifest of an object, with its expressions. It returns false for a copy, and for a manifest
// without a kind.
func ManifestOf(object v1alpha1.TemplateObject) (*unstructured.Unstructured, bool) {
	manifest := &unstructured.Unstructured{}
	return manifest, object.Template != nil && manifest.UnmarshalJSON(object.Template.Raw) == nil
}
