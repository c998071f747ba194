// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
)

// maxProbes is the maximum number of Namespaces that the operator creates with a dry run to verify
// that the API server enforces a set.
const maxProbes = 8

// maxProbeLabels is the maximum number of labels on such a Namespace. The guard policy accepts at
// most 2000 labels and annotations on a new Namespace, and a rejected dry run verifies nothing.
const maxProbeLabels = 1500

// probe describes a Namespace that is created with a dry run to verify that the API server enforces
// the given selectors.
type probe struct {
	labels    map[string]string
	selectors []*v1alpha1.NamespaceSelector
}

// ProbeLabels returns the labels of Namespaces that are created with a dry run to verify that the
// API server enforces a set. The first Namespace has no labels. The other Namespaces have labels
// such that every selector of an initializer or a template matches at least one Namespace. There are
// at most maxProbes Namespaces. A selector that contradicts itself is ignored.
func ProbeLabels(set *internalv1alpha1.NamespaceInitializerSet) []map[string]string {
	probes := []probe{{}}
	for _, initializer := range set.Initializers {
		probes = addProbe(probes, initializer.NamespaceSelector)
	}
	for _, template := range set.Templates {
		selector := template.NamespaceSelector
		if selector == nil {
			selector = &v1alpha1.NamespaceSelector{MatchLabels: map[string]v1alpha1.LabelValue{
				v1alpha1.LabelTemplate: v1alpha1.LabelValue(template.Name),
			}}
		}
		probes = addProbe(probes, selector)
	}
	labels := make([]map[string]string, 0, len(probes))
	for _, probe := range probes {
		labels = append(labels, probe.labels)
	}
	return labels
}

// addProbe adds a selector to a compatible probe, or adds a new probe. The first probe never gets
// labels.
func addProbe(probes []probe, selector *v1alpha1.NamespaceSelector) []probe {
	if selector == nil {
		return probes
	}
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

// labelsFor returns labels that match a selector, if such labels exist.
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
		selector := &v1alpha1.NamespaceSelector{MatchExpressions: requirements}
		if _, ok := labels[key]; ok || Selects(selector, nil) {
			continue
		}
		for _, value := range candidates(requirements) {
			if Selects(selector, map[string]string{key: value}) {
				labels[key] = value
				break
			}
		}
	}
	return labels
}

// candidates returns label values to try. If a value meets the requirements, at least one of the
// candidates does.
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
