// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package selectors

import (
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// AsKubernetes converts a selector to a metav1.LabelSelector.
func AsKubernetes(selector *v1alpha1.NamespaceSelector) *metav1.LabelSelector {
	if selector == nil {
		return &metav1.LabelSelector{}
	}
	result := &metav1.LabelSelector{MatchLabels: map[string]string{}}
	for key, value := range selector.MatchLabels {
		result.MatchLabels[key] = string(value)
	}
	for _, requirement := range selector.MatchExpressions {
		var values []string
		for _, value := range requirement.Values {
			values = append(values, string(value))
		}
		result.MatchExpressions = append(result.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: requirement.Key, Operator: requirement.Operator, Values: values,
		})
	}
	return result
}

// matchLabels returns a selector for the given labels. The arguments alternate between keys and
// values.
func matchLabels(pairs ...string) *v1alpha1.NamespaceSelector {
	selector := &v1alpha1.NamespaceSelector{MatchLabels: map[string]v1alpha1.LabelValue{}}
	for i := 0; i < len(pairs); i += 2 {
		selector.MatchLabels[pairs[i]] = v1alpha1.LabelValue(pairs[i+1])
	}
	return selector
}

func expression(
	key string, operator metav1.LabelSelectorOperator, values ...v1alpha1.LabelValue,
) *v1alpha1.NamespaceSelector {
	return &v1alpha1.NamespaceSelector{MatchExpressions: expressions(
		v1alpha1.NamespaceSelectorRequirement{Key: key, Operator: operator, Values: values})}
}

func expressions(of ...v1alpha1.NamespaceSelectorRequirement) []v1alpha1.NamespaceSelectorRequirement {
	return append([]v1alpha1.NamespaceSelectorRequirement{}, of...)
}

// both returns a selector for the namespaces that both a and b select.
func both(a, b *v1alpha1.NamespaceSelector) *v1alpha1.NamespaceSelector {
	labels := maps.Clone(a.MatchLabels)
	if labels == nil {
		labels = map[string]v1alpha1.LabelValue{}
	}
	maps.Copy(labels, b.MatchLabels)
	return &v1alpha1.NamespaceSelector{
		MatchLabels: labels, MatchExpressions: slices.Concat(a.MatchExpressions, b.MatchExpressions),
	}
}

// numbered returns arguments for matchLabels with the given number of labels.
func numbered(count int) []string {
	var pairs []string
	for i := range count {
		pairs = append(pairs, fmt.Sprintf("k%d", i), fmt.Sprintf("v%d", i))
	}
	return pairs
}

func numberedValues(count int) []v1alpha1.LabelValue {
	values := make([]v1alpha1.LabelValue, 0, count)
	for i := range count {
		values = append(values, v1alpha1.LabelValue(fmt.Sprintf("v%d", i)))
	}
	return values
}
