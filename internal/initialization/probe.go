// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// maxProbes bounds how many Namespaces are created as dry runs in order to see that the API
// server acts on a set.
const maxProbes = 8

// maxProbeLabels bounds the labels of one of them. Policy guard takes 2000 labels and
// annotations of a new Namespace, and a dry run that it refuses would show nothing.
const maxProbeLabels = 1500

// probe is a Namespace that shows that some selectors are in force.
type probe struct {
	labels    map[string]string
	selectors []*v1alpha1.NamespaceSelector
}

// ProbeLabels returns labels of new Namespaces that show together whether the API server acts
// on a set: those of a Namespace without labels, and as many more as it takes for each
// initializer to be selected once, up to a bound. One whose selector contradicts itself is
// never selected.
func ProbeLabels(initializers []v1alpha1.EffectiveInitializer) []map[string]string {
	probes := []probe{{}}
	for _, initializer := range initializers {
		probes = addProbe(probes, initializer.NamespaceSelector)
	}
	labels := make([]map[string]string, 0, len(probes))
	for _, probe := range probes {
		labels = append(labels, probe.labels)
	}
	return labels
}

// addProbe returns the probes with one that a selector selects. The first one keeps its
// labels, which are none.
func addProbe(probes []probe, selector *v1alpha1.NamespaceSelector) []probe {
	for i := range probes {
		if Selects(selector, probes[i].labels) {
			probes[i].selectors = append(probes[i].selectors, selector)
			return probes
		}
	}
	own := labelsFor(selector)
	if !Selects(selector, own) {
		return probes
	}
	for i := 1; i < len(probes); i++ {
		merged := maps.Clone(probes[i].labels)
		maps.Copy(merged, own)
		if len(merged) > maxProbeLabels {
			continue
		}
		all := append(slices.Clone(probes[i].selectors), selector)
		if !slices.ContainsFunc(all, func(s *v1alpha1.NamespaceSelector) bool { return !Selects(s, merged) }) {
			probes[i] = probe{labels: merged, selectors: all}
			return probes
		}
	}
	if len(probes) == maxProbes {
		return probes
	}
	return append(probes, probe{labels: own, selectors: []*v1alpha1.NamespaceSelector{selector}})
}

// labelsFor returns labels that a selector selects, if there are any.
func labelsFor(selector *v1alpha1.NamespaceSelector) map[string]string {
	labels := map[string]string{}
	for key, value := range selector.MatchLabels {
		labels[key] = string(value)
	}
	byKey := map[string][]v1alpha1.NamespaceSelectorRequirement{}
	for _, requirement := range selector.MatchExpressions {
		byKey[requirement.Key] = append(byKey[requirement.Key], requirement)
	}
	for key, requirements := range byKey {
		about := &v1alpha1.NamespaceSelector{MatchExpressions: requirements}
		if _, isFixed := labels[key]; isFixed || Selects(about, nil) {
			continue
		}
		for _, value := range candidates(requirements) {
			if Selects(about, map[string]string{key: value}) {
				labels[key] = value
				break
			}
		}
	}
	return labels
}

// candidates returns values of a label of which one meets the requirements, if any does.
func candidates(requirements []v1alpha1.NamespaceSelectorRequirement) []string {
	values := []string{""}
	for _, requirement := range requirements {
		for _, value := range requirement.Values {
			if requirement.Operator == metav1.LabelSelectorOpIn {
				values = append(values, string(value))
			} else {
				values = append(values, fmt.Sprintf("probe-%d", len(values)))
			}
		}
	}
	return values
}
