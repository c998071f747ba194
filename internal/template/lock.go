// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// WithLock returns an entry with the labels and annotations that the template locks: those that the entry records, and
// the labels by which the template selects the Namespace. A write that omits one does not remove it.
func (s Entry) WithLock(template *v1alpha1.NamespaceTemplate, namespace *corev1.Namespace) Entry {
	s.LockedLabels, s.LockedAnnotations = nil, nil
	if template.Spec.Metadata == nil || template.Spec.Metadata.Lock != v1alpha1.LockAll {
		return s
	}
	for _, object := range s.Objects {
		switch object.Kind {
		case KindLabel:
			s.LockedLabels = append(s.LockedLabels, object.Name)
		case KindAnnotation:
			s.LockedAnnotations = append(s.LockedAnnotations, object.Name)
		}
	}
	if len(s.LockedLabels)+len(s.LockedAnnotations) > 0 {
		s.LockedLabels = append(s.LockedLabels, selectingLabels(template, namespace.Labels)...)
	}
	s.LockedLabels, s.LockedAnnotations = sorted(s.LockedLabels), sorted(s.LockedAnnotations)
	return s
}

func sorted(keys []string) []string { return slices.Compact(slices.Sorted(slices.Values(keys))) }

// selectingLabels returns the labels without which a template would not select a Namespace. The API server sets
// kubernetes.io/metadata.name itself.
func selectingLabels(template *v1alpha1.NamespaceTemplate, labels map[string]string) []string {
	var keys []string
	if labels[v1alpha1.LabelTemplate] == template.Name {
		keys = append(keys, v1alpha1.LabelTemplate)
	}
	if selector := template.Spec.NamespaceSelector; selector != nil {
		keys = slices.AppendSeq(keys, maps.Keys(selector.MatchLabels))
		for _, requirement := range selector.MatchExpressions {
			if requirement.Operator == metav1.LabelSelectorOpIn || requirement.Operator == metav1.LabelSelectorOpExists {
				keys = append(keys, requirement.Key)
			}
		}
	}
	return slices.DeleteFunc(keys, func(key string) bool {
		_, exists := labels[key]
		return !exists || key == corev1.LabelMetadataName
	})
}
