// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

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
	for _, requirement := range requirements {
		if strings.HasPrefix(requirement.Key, v1alpha1.Prefix) && requirement.Key != v1alpha1.LabelDeletionProtection {
			return nil, fmt.Errorf("invalid label selector %q: users cannot set the label %s of a new namespace",
				selector, requirement.Key)
		}
	}
	return requirements, nil
}

// Limit makes all initializers select only Namespaces that also meet the requirements. Call it before AddTemplates.
func (m *Merged) Limit(requirements []v1alpha1.NamespaceSelectorRequirement) {
	m.limit = requirements
	for i := range m.Initializers {
		m.Initializers[i].InitializerSettings = limited(m.Initializers[i].InitializerSettings, requirements)
	}
}

// limited adds requirements to a selector. A nil selector selects nothing.
func limited(
	settings v1alpha1.InitializerSettings, requirements []v1alpha1.NamespaceSelectorRequirement,
) v1alpha1.InitializerSettings {
	if len(requirements) > 0 && settings.NamespaceSelector != nil {
		settings.NamespaceSelector = settings.NamespaceSelector.DeepCopy()
		settings.NamespaceSelector.MatchExpressions = append(settings.NamespaceSelector.MatchExpressions, requirements...)
	}
	return settings
}
