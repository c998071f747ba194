// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
)

// These are the limits of the CRDs for the requirements of a selector and for the values of a requirement.
const maxRequirements, maxValues = 16, 32

// ParseRequirements parses a label selector, as kubectl does. The requirements of an empty selector are nil.
func ParseRequirements(selector string) ([]v1alpha1.NamespaceSelectorRequirement, error) {
	parsed, err := metav1.ParseToLabelSelector(selector)
	if err != nil {
		return nil, fmt.Errorf("invalid label selector %q: %w", selector, err)
	}
	var requirements []v1alpha1.NamespaceSelectorRequirement
	for _, key := range slices.Sorted(maps.Keys(parsed.MatchLabels)) {
		requirements = append(requirements, v1alpha1.NamespaceSelectorRequirement{
			Key: key, Operator: metav1.LabelSelectorOpIn,
			Values: []v1alpha1.LabelValue{v1alpha1.LabelValue(parsed.MatchLabels[key])},
		})
	}
	for _, expression := range parsed.MatchExpressions {
		requirement := v1alpha1.NamespaceSelectorRequirement{Key: expression.Key, Operator: expression.Operator}
		for _, value := range expression.Values {
			requirement.Values = append(requirement.Values, v1alpha1.LabelValue(value))
		}
		requirements = append(requirements, requirement)
	}
	if len(requirements) > maxRequirements {
		return nil, fmt.Errorf("invalid label selector %q: it has more than %d requirements", selector, maxRequirements)
	}
	for _, requirement := range requirements {
		if len(requirement.Values) > maxValues {
			return nil, fmt.Errorf("invalid label selector %q: a requirement has more than %d values", selector, maxValues)
		}
		if strings.HasPrefix(requirement.Key, v1alpha1.Prefix) && requirement.Key != v1alpha1.LabelDeletionProtection {
			return nil, fmt.Errorf("invalid label selector %q: users cannot set the label %s of a new namespace",
				selector, requirement.Key)
		}
	}
	return requirements, nil
}

// limited returns settings with the defaults and comparable subjects, whose selector has the requirements in addition.
func limited(
	settings v1alpha1.InitializerSettings, requirements []v1alpha1.NamespaceSelectorRequirement,
) v1alpha1.InitializerSettings {
	defaults := v1alpha1.DefaultInitializerSettings()
	settings = *settings.DeepCopy()
	settings.FailurePolicy = cmp.Or(settings.FailurePolicy, defaults.FailurePolicy)
	settings.Confinement = cmp.Or(settings.Confinement, defaults.Confinement)
	settings.Subjects = ComparableSubjects(settings.Subjects)
	settings.NamespaceSelector = cmp.Or(settings.NamespaceSelector, defaults.NamespaceSelector)
	settings.NamespaceSelector.MatchExpressions = append(settings.NamespaceSelector.MatchExpressions, requirements...)
	return settings
}

func hasTooManyRequirements(entry internalv1alpha1.EffectiveInitializer) bool {
	return entry.NamespaceSelector != nil && len(entry.NamespaceSelector.MatchExpressions) > maxRequirements
}
