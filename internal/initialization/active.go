// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
)

// maxNamedOverridden is the maximum number of overridden initializers that a message names.
const maxNamedOverridden = 5

// EnforcedCondition returns the Enforced condition in the status of a set. If it does not describe the current
// generation of the set, EnforcedCondition returns false, and a condition that reports this.
func EnforcedCondition(set *internalv1alpha1.NamespaceInitializerSet) (condition metav1.Condition, isCurrent bool) {
	current := meta.FindStatusCondition(set.Status.Conditions, internalv1alpha1.ConditionEnforced)
	if current != nil && set.Status.ObservedGeneration == set.Generation {
		return *current, true
	}
	return metav1.Condition{
		Type: internalv1alpha1.ConditionEnforced, Status: metav1.ConditionFalse, ObservedGeneration: set.Generation,
		Reason: v1alpha1.ReasonEnforcementPending, Message: messageNotVerified,
	}, false
}

// ActiveCondition returns the Active condition of a configuration. The given reason and message
// describe whether the API server enforces the merged set. If new Namespaces get its initializers, the reason is
// v1alpha1.ReasonEnforced or v1alpha1.ReasonAuditMode.
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
		condition.Message = setTooLargeMessage()
	case slices.Contains(merged.Excluded, configuration.Name):
		condition.Reason = v1alpha1.ReasonTooManyInitializers
		condition.Message = tooManyInitializersMessage()
	case reason != v1alpha1.ReasonEnforced && reason != v1alpha1.ReasonAuditMode:
	case len(configuration.Initializers) == 0:
		condition.Status = metav1.ConditionTrue
		condition.Reason = v1alpha1.ReasonEmpty
		condition.Message = messageNoInitializers
	default:
		condition.Status = metav1.ConditionTrue
		if hasSelectors(configuration, merged) {
			condition.Message += messageSelectorsApply
		}
		condition.Message += overriddenMessage(merged.Overridden[configuration.Name])
	}
	return condition
}

// hasSelectors reports whether the merged list has a selector for an initializer of the
// configuration.
func hasSelectors(configuration *v1alpha1.NamespaceInitializerConfiguration, merged Merged) bool {
	names := map[string]bool{}
	for _, initializer := range configuration.Initializers {
		names[initializer.Name] = true
	}
	return slices.ContainsFunc(merged.Initializers, func(entry internalv1alpha1.EffectiveInitializer) bool {
		return names[entry.Name] && !apiequality.Semantic.DeepEqual(entry.NamespaceSelector, &v1alpha1.NamespaceSelector{})
	})
}
