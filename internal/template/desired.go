// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"cmp"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// CheckCount returns a problem if the templates of a Namespace contain too many objects. Those of templates whose names
// are later do not count.
func CheckCount(count int) error {
	if count <= MaxObjects {
		return nil
	}
	return Problemf(v1alpha1.ReasonTooManyObjects,
		"the templates of the namespace contain more than %d objects", MaxObjects)
}

// MayRemove reports whether a recorded object that a template no longer contains is deleted after all others were
// applied. If the template contains no object at all, which is more likely to be a mistake, the object remains. Labels
// and annotations of the Namespace are removed even then, because they would be wrong. With an unknown policy, nothing
// is deleted.
func MayRemove(template *v1alpha1.NamespaceTemplate, kind schema.GroupKind, desired int) bool {
	policy := cmp.Or(template.Spec.ObjectRetentionPolicy.WhenRemoved, v1alpha1.RetentionDelete)
	return (desired > 0 || IsMetadata(kind)) && policy == v1alpha1.RetentionDelete
}

// RetentionPolicy returns what happens to the objects of a template that no longer applies to a Namespace.
func RetentionPolicy(template *v1alpha1.NamespaceTemplate) v1alpha1.RetentionPolicy {
	if template.DeletionTimestamp != nil {
		return template.Spec.ObjectRetentionPolicy.WhenDeleted
	}
	return template.Spec.ObjectRetentionPolicy.WhenDeselected
}

// ResourceOf returns the resource of a namespaced kind, in the preferred version if the kind has none.
func ResourceOf(mapper meta.RESTMapper, kind schema.GroupVersionKind) (schema.GroupVersionResource, error) {
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	switch {
	case meta.IsNoMatchError(err):
		return schema.GroupVersionResource{}, Problemf(v1alpha1.ReasonKindNotFound,
			"the API server does not serve kind %q in %q", kind.Kind, strings.TrimSuffix(kind.GroupVersion().String(), "/"))
	case err != nil:
		return schema.GroupVersionResource{}, fmt.Errorf("failed to discover kind %q: %w", kind.Kind, err)
	case mapping.Scope.Name() != meta.RESTScopeNameNamespace:
		return schema.GroupVersionResource{}, Problemf(v1alpha1.ReasonInvalidObject,
			"kind %q in %q is cluster-scoped, and templates can contain only namespaced kinds",
			kind.Kind, kind.GroupVersion())
	}
	return mapping.Resource, nil
}

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
