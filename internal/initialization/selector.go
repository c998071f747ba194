// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"iter"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
)

// unknownName is not a valid label value, so no selector lists it.
const unknownName = "?"

// SelectorLabels returns a copy of the labels that selectors are evaluated against when a Namespace is created. The
// name is empty if it will be generated. The API server then sets the label kubernetes.io/metadata.name later, and
// replaces a value in the request.
func SelectorLabels(name string, labels map[string]string) map[string]string {
	copied := maps.Clone(labels)
	if name == "" {
		if copied == nil {
			copied = map[string]string{}
		}
		copied[corev1.LabelMetadataName] = unknownName
	}
	return copied
}

// Selected returns the initializers that a new Namespace with these labels gets, in order. The
// inject policy implements the same rules.
func Selected(
	set *internalv1alpha1.NamespaceInitializerSet, labels map[string]string,
) []internalv1alpha1.EffectiveInitializer {
	hasTemplate := len(SelectedTemplates(set, labels)) > 0
	var selected []internalv1alpha1.EffectiveInitializer
	for _, initializer := range set.Initializers {
		if Selects(initializer.NamespaceSelector, labels) &&
			(hasTemplate || initializer.Name != v1alpha1.TemplatesInitializer) {
			selected = append(selected, initializer)
		}
	}
	return selected
}

// SelectedTemplates returns the names of the templates that select a new Namespace with these labels, in order.
// The inject policy implements the same rules.
func SelectedTemplates(set *internalv1alpha1.NamespaceInitializerSet, labels map[string]string) []string {
	var selected []string
	for _, template := range set.Templates {
		if SelectsTemplate(template.Name, template.NamespaceSelector, labels) {
			selected = append(selected, template.Name)
		}
	}
	return selected
}

// SelectsTemplate reports whether a template with this name and selector selects a Namespace with these
// labels: by its selector, or by the label with its name.
func SelectsTemplate(name string, selector *v1alpha1.NamespaceSelector, labels map[string]string) bool {
	return labels[v1alpha1.LabelTemplate] == name || Selects(selector, labels)
}

// Selects reports whether a selector selects a Namespace with these labels. A nil selector selects
// none. A requirement with an unknown operator is treated as met, because users notice
// if a Namespace waits for an unnecessary initializer, but might not notice if a necessary
// initializer is missing.
func Selects(selector *v1alpha1.NamespaceSelector, labels map[string]string) bool {
	if selector == nil {
		return false
	}
	for range UnmetRequirements(selector, labels) {
		return false
	}
	return true
}

// UnmetRequirements iterates over the requirements of a selector that labels do not meet, in no particular order. Those
// of matchLabels have the operator In.
func UnmetRequirements(
	selector *v1alpha1.NamespaceSelector, labels map[string]string,
) iter.Seq[v1alpha1.NamespaceSelectorRequirement] {
	return func(yield func(v1alpha1.NamespaceSelectorRequirement) bool) {
		for key, want := range selector.MatchLabels {
			if value, ok := labels[key]; ok && value == string(want) {
				continue
			}
			if !yield(v1alpha1.NamespaceSelectorRequirement{
				Key: key, Operator: metav1.LabelSelectorOpIn, Values: []v1alpha1.LabelValue{want},
			}) {
				return
			}
		}
		for _, requirement := range selector.MatchExpressions {
			if !isMet(requirement, labels) && !yield(requirement) {
				return
			}
		}
	}
}

func isMet(requirement v1alpha1.NamespaceSelectorRequirement, labels map[string]string) bool {
	value, ok := labels[requirement.Key]
	isListed := ok && slices.Contains(requirement.Values, v1alpha1.LabelValue(value))
	switch requirement.Operator {
	case metav1.LabelSelectorOpIn:
		return isListed
	case metav1.LabelSelectorOpNotIn:
		return !isListed
	case metav1.LabelSelectorOpExists:
		return ok
	case metav1.LabelSelectorOpDoesNotExist:
		return !ok
	}
	return true
}

// MissingFinalizers returns the namespace finalizers of the initializers that spec.finalizers does
// not contain, in order and without duplicates.
func MissingFinalizers(
	namespace *corev1.Namespace, initializers []internalv1alpha1.EffectiveInitializer,
) []corev1.FinalizerName {
	var missing []corev1.FinalizerName
	for _, initializer := range initializers {
		finalizer := corev1.FinalizerName(initializer.NamespaceFinalizer)
		if finalizer != "" && !slices.Contains(namespace.Spec.Finalizers, finalizer) && !slices.Contains(missing, finalizer) {
			missing = append(missing, finalizer)
		}
	}
	return missing
}
