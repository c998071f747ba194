// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/templateset"
)

// Inject changes a new Namespace that a user creates as the inject policy does. The set is nil if there is none.
func Inject(namespace *corev1.Namespace, set *internalv1alpha1.NamespaceInitializerSet, username string) {
	labels := initialization.SelectorLabels(namespace.Name, namespace.Labels)
	// Users cannot choose initializers or forge the requester.
	maps.DeleteFunc(namespace.Labels, func(key, _ string) bool {
		return strings.HasPrefix(key, v1alpha1.Prefix) && !slices.Contains(initialization.SettableLabels, key)
	})
	maps.DeleteFunc(namespace.Annotations, func(key, _ string) bool { return strings.HasPrefix(key, v1alpha1.Prefix) })
	if set == nil || slices.Contains(initialization.Exempt(set.SystemNamespace, set.SourceNamespace), namespace.Name) {
		return
	}
	addDefaults(namespace, set, labels)
	selected := initialization.Selected(set, labels)
	if len(selected) == 0 {
		return
	}
	names := initialization.Names(selected)
	put(&namespace.Labels, v1alpha1.LabelInitializing, "true")
	put(&namespace.Annotations, v1alpha1.AnnotationPendingInitializers, strings.Join(names, ","))
	put(&namespace.Annotations, v1alpha1.AnnotationInitializers, strings.Join(names, ","))
	put(&namespace.Annotations, v1alpha1.AnnotationRequestedBy, username)
	templates := initialization.SelectedTemplates(set, labels)
	if len(templates) > 0 && slices.Contains(names, v1alpha1.TemplatesInitializer) {
		addMetadata(namespace, set, templates, username)
		put(&namespace.Annotations, v1alpha1.AnnotationSelectedTemplates, strings.Join(templates, ","))
	}
	namespace.Spec.Finalizers = append(namespace.Spec.Finalizers, initialization.MissingFinalizers(namespace, selected)...)
}

// addDefaults adds the parameters with a default that the request does not set. The default of the first template is
// used.
func addDefaults(namespace *corev1.Namespace, set *internalv1alpha1.NamespaceInitializerSet, labels map[string]string) {
	selected := initialization.SelectedTemplates(set, labels)
	for _, template := range set.Templates {
		if !slices.Contains(selected, template.Name) {
			continue
		}
		for _, parameter := range template.Parameters {
			key := v1alpha1.PrefixParameter + parameter.Name
			if _, isSet := namespace.Annotations[key]; isSet || parameter.Default == nil || parameter.LabelKey != "" {
				continue
			}
			put(&namespace.Annotations, key, *parameter.Default)
		}
	}
}

// addMetadata sets the labels and annotations that the selected templates contain. If several templates contain the
// same key, it uses the value of the first template. It removes the key from the request if no template has a value.
func addMetadata(
	namespace *corev1.Namespace, set *internalv1alpha1.NamespaceInitializerSet, selected []string, username string,
) {
	request := namespace.DeepCopy()
	setting := slices.DeleteFunc(slices.Clone(set.Templates), func(template internalv1alpha1.EffectiveTemplate) bool {
		return !slices.Contains(selected, template.Name)
	})
	for _, template := range setting {
		for _, value := range template.Labels {
			delete(namespace.Labels, value.Key)
		}
		for _, value := range template.Annotations {
			delete(namespace.Annotations, value.Key)
		}
	}
	for _, template := range slices.Backward(setting) {
		for key, value := range templateset.Evaluate(template.Labels, request, username) {
			put(&namespace.Labels, key, value)
		}
		for key, value := range templateset.Evaluate(template.Annotations, request, username) {
			put(&namespace.Annotations, key, value)
		}
	}
}

func put(values *map[string]string, key, value string) {
	if *values == nil {
		*values = map[string]string{}
	}
	(*values)[key] = value
}
