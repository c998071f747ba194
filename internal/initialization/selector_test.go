// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework/selectors"
)

func entry(name string) internalv1alpha1.EffectiveInitializer {
	return internalv1alpha1.EffectiveInitializer{Name: name, Configuration: "corp", InitializerSettings: v1alpha1.DefaultInitializerSettings()}
}

// selecting returns the entry with a selector that matches one label.
func selecting(entry internalv1alpha1.EffectiveInitializer, key, value string) internalv1alpha1.EffectiveInitializer {
	entry.NamespaceSelector = &v1alpha1.NamespaceSelector{
		MatchLabels: map[string]v1alpha1.LabelValue{key: v1alpha1.LabelValue(value)},
	}
	return entry
}

func setOf(initializers ...internalv1alpha1.EffectiveInitializer) *internalv1alpha1.NamespaceInitializerSet {
	return &internalv1alpha1.NamespaceInitializerSet{Initializers: initializers}
}

// test/initialization verifies that the inject policy selects the same namespaces.
func TestSelectsAsKubernetesDoes(t *testing.T) {
	for name, selector := range selectors.All() {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			kubernetes, err := metav1.LabelSelectorAsSelector(selectors.AsKubernetes(selector))
			g.Expect(err).NotTo(HaveOccurred())
			for of, set := range selectors.Labels() {
				g.Expect(Selects(selector, set)).To(Equal(kubernetes.Matches(labels.Set(set))), of)
			}
		})
	}
}

// The API server rejects these selectors. If a selector with an unknown operator exists anyway, the
// namespace waits.
func TestSelectsWithInvalidSelectors(t *testing.T) {
	g := NewWithT(t)
	of := func(operator metav1.LabelSelectorOperator) *v1alpha1.NamespaceSelector {
		return &v1alpha1.NamespaceSelector{MatchExpressions: []v1alpha1.NamespaceSelectorRequirement{
			{Key: "team", Operator: operator},
		}}
	}
	g.Expect(Selects(of("Near"), nil)).To(BeTrue())
	g.Expect(Selects(of(metav1.LabelSelectorOpIn), map[string]string{"team": ""})).To(BeFalse())
	g.Expect(Selects(of(metav1.LabelSelectorOpNotIn), map[string]string{"team": ""})).To(BeTrue())
}

func TestSelectedKeepsTheOrder(t *testing.T) {
	g := NewWithT(t)
	initializers := []internalv1alpha1.EffectiveInitializer{
		selecting(entry(rbac), "team", "a"), entry(quota), selecting(entry(mesh), "team", "a"),
		selecting(entry("other.corp.com"), "team", "b"),
	}
	g.Expect(Names(Selected(setOf(initializers...), map[string]string{"team": "a"}))).To(Equal([]string{rbac, quota, mesh}))
	g.Expect(Names(Selected(setOf(initializers...), nil))).To(Equal([]string{quota}))
	g.Expect(Selected(setOf(), nil)).To(BeEmpty())
}

func TestSelectedWithTemplates(t *testing.T) {
	set := setOf(entry(rbac), entry(v1alpha1.TemplatesInitializer), entry(quota))
	set.Templates = []internalv1alpha1.EffectiveTemplate{
		{Name: "by-name"}, {Name: "by-label", NamespaceSelector: selecting(entry(""), "team", "a").NamespaceSelector},
	}
	without, with := []string{rbac, quota}, []string{rbac, v1alpha1.TemplatesInitializer, quota}
	for name, test := range map[string]struct {
		labels map[string]string
		want   []string
	}{
		"no labels":                      {want: without},
		"another label":                  {labels: map[string]string{"team": "b"}, want: without},
		"selected by its labels":         {labels: map[string]string{"team": "a"}, want: with},
		"selected by name":               {labels: map[string]string{v1alpha1.LabelTemplate: "by-name"}, want: with},
		"a template that does not exist": {labels: map[string]string{v1alpha1.LabelTemplate: "other"}, want: without},
		"a template with a selector, by name": {
			labels: map[string]string{v1alpha1.LabelTemplate: "by-label", "team": "b"}, want: with,
		},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(Names(Selected(set, test.labels))).To(Equal(test.want))
		})
	}
	g := NewWithT(t)
	g.Expect(ProbeLabels(set)).To(Equal([]map[string]string{nil, {v1alpha1.LabelTemplate: "by-name", "team": "a"}}))
	set.Templates = append(set.Templates, internalv1alpha1.EffectiveTemplate{
		Name: "all", NamespaceSelector: &v1alpha1.NamespaceSelector{},
	})
	g.Expect(Names(Selected(set, nil))).To(Equal(with), "an empty selector selects every namespace")
}

func TestMissingFinalizers(t *testing.T) {
	with := func(finalizers ...string) []internalv1alpha1.EffectiveInitializer {
		var initializers []internalv1alpha1.EffectiveInitializer
		for i, finalizer := range finalizers {
			initializer := entry(fmt.Sprintf("i%d.corp.com", i))
			initializer.NamespaceFinalizer = finalizer
			initializers = append(initializers, initializer)
		}
		return initializers
	}
	type names = []corev1.FinalizerName
	for name, test := range map[string]struct {
		have         names
		initializers []internalv1alpha1.EffectiveInitializer
		want         names
	}{
		"none":          {have: names{"kubernetes"}, initializers: with("", "")},
		"in list order": {initializers: with("b.c/d", "", "a.b/c"), want: names{"b.c/d", "a.b/c"}},
		"each once":     {initializers: with("b.c/d", "a.b/c", "b.c/d"), want: names{"b.c/d", "a.b/c"}},
		"finalizers that the user has set are kept": {have: names{"a.b/c", "kubernetes"}, initializers: with("b.c/d", "a.b/c"), want: names{"b.c/d"}},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := &corev1.Namespace{Spec: corev1.NamespaceSpec{Finalizers: test.have}}
			NewWithT(t).Expect(MissingFinalizers(namespace, test.initializers)).To(Equal(test.want))
		})
	}
}

// Every initializer that can be selected is selected by at least one probe.
func TestProbeLabels(t *testing.T) {
	all := selectors.All()
	for name, selector := range all {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			initializer := entry(rbac)
			initializer.NamespaceSelector = selector
			probes := ProbeLabels(setOf(initializer))
			g.Expect(probes[0]).To(BeEmpty())
			selected := slices.ContainsFunc(probes, func(set map[string]string) bool { return Selects(selector, set) })
			isPossible := name[:min(len(name), 13)] != "contradiction" && selector != nil
			g.Expect(selected).To(Equal(isPossible))
			if !isPossible || Selects(selector, nil) {
				g.Expect(probes).To(HaveLen(1))
			}
		})
	}

	t.Run("with all selectors together", func(t *testing.T) {
		g := NewWithT(t)
		var initializers []internalv1alpha1.EffectiveInitializer
		for _, name := range slices.Sorted(maps.Keys(all)) {
			initializer := entry(name)
			initializer.NamespaceSelector = all[name]
			initializers = append(initializers, initializer)
		}
		probes := ProbeLabels(setOf(initializers...))
		g.Expect(len(probes)).To(BeNumerically("<=", maxProbes))
		selected := map[string]bool{}
		for _, set := range probes {
			for _, initializer := range Selected(setOf(initializers...), set) {
				selected[initializer.Name] = true
			}
		}
		// All selectors match a probe, except contradictions and a few for which maxProbes is too
		// small.
		g.Expect(len(selected)).To(BeNumerically(">=", len(all)-8))
	})

	t.Run("with two compatible selectors", func(t *testing.T) {
		g := NewWithT(t)
		g.Expect(ProbeLabels(setOf(
			selecting(entry(rbac), "team", "a"), selecting(entry(quota), "tier", "gold"), entry(mesh),
		))).To(Equal([]map[string]string{nil, {"team": "a", "tier": "gold"}}))
	})

	t.Run("with two incompatible selectors", func(t *testing.T) {
		g := NewWithT(t)
		g.Expect(ProbeLabels(setOf(
			selecting(entry(rbac), "team", "a"), selecting(entry(quota), "team", "b"),
		))).To(Equal([]map[string]string{nil, {"team": "a"}, {"team": "b"}}))
	})

	t.Run("with more labels than a new namespace can have", func(t *testing.T) {
		g := NewWithT(t)
		var initializers []internalv1alpha1.EffectiveInitializer
		for i := range internalv1alpha1.MaxInitializers {
			initializer := selecting(entry(rbac), fmt.Sprintf("l%d", i), "a")
			for j := range 15 {
				initializer.NamespaceSelector.MatchLabels[fmt.Sprintf("l%d-%d", i, j)] = "a"
			}
			initializers = append(initializers, initializer)
		}
		probes := ProbeLabels(setOf(initializers...))
		g.Expect(probes).To(HaveEach(Satisfy(func(set map[string]string) bool { return len(set) <= maxProbeLabels })))
		// Each initializer is still selected by a probe.
		total := 0
		for _, set := range probes {
			total += len(set)
		}
		g.Expect(total).To(Equal(16 * internalv1alpha1.MaxInitializers))
	})

	t.Run("with more selectors than maxProbes", func(t *testing.T) {
		g := NewWithT(t)
		var initializers []internalv1alpha1.EffectiveInitializer
		for i := range 3 * maxProbes {
			initializers = append(initializers, selecting(entry(rbac), "team", fmt.Sprintf("t%d", i)))
		}
		g.Expect(ProbeLabels(setOf(initializers...))).To(HaveLen(maxProbes))
	})
}
