// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package selectors contains namespace selectors and labels. Tests use them to check that
// Kubernetes, the operator and the admission policy select the same namespaces.
package selectors

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// Label keys that most selectors use.
const (
	team = "team"
	tier = "corp.example.com/tier"
)

// All returns valid selectors by name. Together they fit into one configuration.
func All() map[string]*v1alpha1.NamespaceSelector {
	const (
		in, notIn       = metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn
		exists, missing = metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist
	)
	all := map[string]*v1alpha1.NamespaceSelector{
		"none":            nil,
		"empty":           {},
		"empty-parts":     {MatchLabels: map[string]v1alpha1.LabelValue{}, MatchExpressions: expressions()},
		"label":           matchLabels(team, "a"),
		"label-b":         matchLabels(team, "b"),
		"label-empty":     matchLabels(team, ""),
		"label-case":      matchLabels(team, "A"),
		"label-prefix":    matchLabels(tier, "gold"),
		"labels":          matchLabels(team, "a", tier, "gold"),
		"labels-other":    matchLabels(team, "a", tier, "silver"),
		"many-labels":     matchLabels(numbered(16)...),
		"in":              expression(team, in, "a"),
		"in-two":          expression(team, in, "a", "b"),
		"in-empty":        expression(team, in, ""),
		"in-with-empty":   expression(team, in, "", "b"),
		"in-twice":        expression(team, in, "b", "b"),
		"in-prefix":       expression(tier, in, "silver", "gold"),
		"in-substring":    expression(team, in, "aa"),
		"in-many":         expression(team, in, append(numberedValues(31), "a")...),
		"in-long":         expression(team, in, v1alpha1.LabelValue(strings.Repeat("x", 63))),
		"not-in":          expression(team, notIn, "a"),
		"not-in-two":      expression(team, notIn, "a", "b"),
		"not-in-empty":    expression(team, notIn, ""),
		"not-in-prefix":   expression(tier, notIn, "gold"),
		"not-in-many":     expression(team, notIn, append(numberedValues(31), "b")...),
		"exists":          expression(team, exists),
		"exists-prefix":   expression(tier, exists),
		"exists-name":     expression("kubernetes.io/metadata.name", exists),
		"name":            expression("kubernetes.io/metadata.name", in, "shop"),
		"not-name":        expression("kubernetes.io/metadata.name", notIn, "shop"),
		"missing":         expression(team, missing),
		"missing-prefix":  expression(tier, missing),
		"missing-other":   expression("absent", missing),
		"exists-other":    expression("absent", exists),
		"protected":       expression(v1alpha1.LabelDeletionProtection, exists),
		"not-protected":   expression(v1alpha1.LabelDeletionProtection, missing),
		"both":            both(matchLabels(team, "a"), expression(tier, exists)),
		"both-not":        both(matchLabels(team, "a"), expression(tier, missing)),
		"both-same":       both(matchLabels(team, "a"), expression(team, in, "a", "b")),
		"contradiction":   both(matchLabels(team, "a"), expression(team, notIn, "a")),
		"contradiction-2": both(expression(team, exists), expression(team, missing)),
		"contradiction-3": both(expression(team, in, "a"), expression(team, in, "b")),
		"narrowed":        both(expression(team, in, "a", "b"), expression(team, notIn, "a")),
		"overlap":         both(expression(team, in, "a", "b"), expression(team, in, "b", "c")),
		"exists-not-a":    both(expression(team, exists), expression(team, notIn, "a")),
		"exists-not-any":  both(expression(team, exists), expression(team, notIn, "", "probe-0")),
		"missing-or-b":    both(expression(team, notIn, "a"), expression(tier, notIn, "gold", "silver")),
		"and-missing":     both(expression(team, in, "a", "b"), expression(tier, missing)),
		"key-upper":       expression("Team", exists),
		"key-dots":        expression("a.b.c_d-e", exists),
	}
	most := &v1alpha1.NamespaceSelector{}
	for range 16 {
		not := expression(team, notIn, numberedValues(32)...)
		most.MatchExpressions = append(most.MatchExpressions, not.MatchExpressions...)
	}
	all["most"] = most
	return all
}

// Labels returns sets of namespace labels by name.
func Labels() map[string]map[string]string {
	all := map[string]map[string]string{
		"none":        nil,
		"empty":       {team: ""},
		"long":        {team: strings.Repeat("x", 63)},
		"upper":       {team: "A"},
		"upper-key":   {"Team": "a"},
		"dots":        {"a.b.c_d-e": "x"},
		"gold":        {tier: "gold"},
		"tier-empty":  {tier: ""},
		"other":       {"absent": "a"},
		"protected":   {v1alpha1.LabelDeletionProtection: "true"},
		"ours":        {v1alpha1.LabelInitializing: "true", v1alpha1.Prefix + "x": "a"},
		"wrong-name":  {"kubernetes.io/metadata.name": "shop"},
		"other-name":  {"kubernetes.io/metadata.name": "other"},
		"many":        {},
		"almost-many": {},
	}
	for _, value := range []string{"a", "b", "c", "aa", "probe-0", "v7"} {
		all["team-"+value] = map[string]string{team: value}
		for _, level := range []string{"", "gold", "silver", "bronze"} {
			all["team-"+value+"-"+level] = map[string]string{team: value, tier: level}
		}
	}
	pairs := numbered(16)
	for i := 0; i < len(pairs); i += 2 {
		all["many"][pairs[i]] = pairs[i+1]
		all["almost-many"][pairs[i]] = pairs[i+1]
	}
	all["almost-many"][pairs[0]] = "x"
	return all
}

// AsKubernetes converts a selector to a metav1.LabelSelector.
func AsKubernetes(selector *v1alpha1.NamespaceSelector) *metav1.LabelSelector {
	if selector == nil {
		return nil
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
