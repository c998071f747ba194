// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// Selected returns those of the initializers that a new Namespace with these labels gets, in
// order. Policy inject judges in the same way.
func Selected(
	initializers []v1alpha1.EffectiveInitializer, labels map[string]string,
) []v1alpha1.EffectiveInitializer {
	var selected []v1alpha1.EffectiveInitializer
	for _, initializer := range initializers {
		if Selects(initializer.NamespaceSelector, labels) {
			selected = append(selected, initializer)
		}
	}
	return selected
}

// Selects tells whether a selector selects a Namespace with these labels. Without a selector
// every Namespace is selected. An operator that is not known selects, too: a Namespace that
// waits in vain is noticed, and one that should have waited is not.
func Selects(selector *v1alpha1.NamespaceSelector, labels map[string]string) bool {
	if selector == nil {
		return true
	}
	for key, want := range selector.MatchLabels {
		if value, found := labels[key]; !found || value != string(want) {
			return false
		}
	}
	for _, requirement := range selector.MatchExpressions {
		value, found := labels[requirement.Key]
		isListed := found && slices.Contains(requirement.Values, v1alpha1.LabelValue(value))
		switch requirement.Operator {
		case metav1.LabelSelectorOpIn:
			if !isListed {
				return false
			}
		case metav1.LabelSelectorOpNotIn:
			if isListed {
				return false
			}
		case metav1.LabelSelectorOpExists:
			if !found {
				return false
			}
		case metav1.LabelSelectorOpDoesNotExist:
			if found {
				return false
			}
		}
	}
	return true
}

// MissingTokens returns the tokens of the initializers that a Namespace does not have in
// spec.finalizers, each once, in order.
func MissingTokens(
	namespace *corev1.Namespace, initializers []v1alpha1.EffectiveInitializer,
) []corev1.FinalizerName {
	var missing []corev1.FinalizerName
	for _, initializer := range initializers {
		token := corev1.FinalizerName(initializer.Finalizer)
		if token != "" && !slices.Contains(namespace.Spec.Finalizers, token) && !slices.Contains(missing, token) {
			missing = append(missing, token)
		}
	}
	return missing
}
