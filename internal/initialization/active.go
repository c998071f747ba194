// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// mostOverruled is how many initializers a message names.
const mostOverruled = 5

// ActiveCondition returns the Active condition of a configuration. The reason says
// what the API server does with the merged set as a whole, v1alpha1.ReasonEnforced
// where it acts on it; the message says more.
func ActiveCondition(
	configuration *v1alpha1.NamespaceInitializerConfiguration, merged Merged, reason, message string,
) metav1.Condition {
	condition := metav1.Condition{
		Type:               v1alpha1.ConditionActive,
		Status:             metav1.ConditionFalse,
		ObservedGeneration: configuration.Generation,
		Reason:             reason,
		Message:            message,
	}
	switch {
	case slices.Contains(merged.TooLarge, configuration.Name):
		condition.Reason = v1alpha1.ReasonTooManyInitializers
		condition.Message = fmt.Sprintf("the initializers of all configurations together may have %d KiB, and those of "+
			"configurations that sort before this one leave no room; none of its initializers is in force: "+
			"shorten the selectors, there or here", maxSetBytes>>10)
	case slices.Contains(merged.LeftOut, configuration.Name):
		condition.Reason = v1alpha1.ReasonTooManyInitializers
		condition.Message = fmt.Sprintf("all configurations together may name %d initializers, and those of "+
			"configurations that sort before this one leave no room; none of its initializers is in force: "+
			"remove some initializers, there or here", v1alpha1.MaxSetInitializers)
	case reason != v1alpha1.ReasonEnforced:
	case len(configuration.Initializers) == 0:
		condition.Status = metav1.ConditionTrue
		condition.Reason = v1alpha1.ReasonEmpty
		condition.Message = "this configuration names no initializer, so it adds nothing to new namespaces"
	default:
		condition.Status = metav1.ConditionTrue
		if hasSelectors(configuration, merged) {
			condition.Message += "; those with a namespaceSelector only where it selects the namespace"
		}
		condition.Message += overruling(merged.Overruled[configuration.Name])
	}
	return condition
}

// hasSelectors tells whether the list has a selector for an initializer of the configuration.
func hasSelectors(configuration *v1alpha1.NamespaceInitializerConfiguration, merged Merged) bool {
	names := map[string]bool{}
	for _, initializer := range configuration.Initializers {
		names[initializer.Name] = true
	}
	return slices.ContainsFunc(merged.Initializers, func(entry v1alpha1.EffectiveInitializer) bool {
		return names[entry.Name] && entry.NamespaceSelector != nil
	})
}

// overruling tells, as the end of a sentence, which settings of a configuration do not count.
func overruling(entries []v1alpha1.EffectiveInitializer) string {
	if len(entries) == 0 {
		return ""
	}
	text := "; the settings here do not count for "
	for i, entry := range entries {
		if i == mostOverruled {
			return text + fmt.Sprintf(" and %d more", len(entries)-i)
		}
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%s, which has others in configuration %q", entry.Name, entry.Configuration)
	}
	return text
}
