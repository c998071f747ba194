// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
)

func TestParseRequirements(t *testing.T) {
	g := NewWithT(t)
	g.Expect(ParseRequirements("")).To(BeNil())
	g.Expect(ParseRequirements("trial=true,team in (a,b),!legacy")).To(ConsistOf(
		v1alpha1.NamespaceSelectorRequirement{
			Key: "trial", Operator: metav1.LabelSelectorOpIn, Values: []v1alpha1.LabelValue{"true"},
		},
		v1alpha1.NamespaceSelectorRequirement{
			Key: "team", Operator: metav1.LabelSelectorOpIn, Values: []v1alpha1.LabelValue{"a", "b"},
		},
		v1alpha1.NamespaceSelectorRequirement{Key: "legacy", Operator: metav1.LabelSelectorOpDoesNotExist}))
	var values []string
	for i := range maxValues + 1 {
		values = append(values, fmt.Sprint(i))
	}
	for _, invalid := range []string{"a b", "=", "size>3", "nslifecycle.dev/initializing=true",
		strings.Repeat("a,", maxRequirements) + "a", "a in (" + strings.Join(values, ",") + ")"} {
		_, err := ParseRequirements(invalid)
		g.Expect(err).To(HaveOccurred(), invalid)
	}
}

func TestLimit(t *testing.T) {
	g := NewWithT(t)
	requirements, err := ParseRequirements("trial=true")
	g.Expect(err).NotTo(HaveOccurred())
	everywhere := v1alpha1.DefaultInitializerSettings()
	configurations := []v1alpha1.NamespaceInitializerConfiguration{{
		ObjectMeta: metav1.ObjectMeta{Name: "c"}, Initializers: []v1alpha1.NamespaceInitializer{
			{Name: "a.example.com", InitializerSettings: everywhere},
			{Name: "b.example.com"},
		},
	}}
	merged := Merge(configurations, requirements)
	templates := merged.AddTemplates([]v1alpha1.NamespaceTemplate{{ObjectMeta: metav1.ObjectMeta{Name: "team"}}}, nil)
	g.Expect(configurations[0].Initializers[0].NamespaceSelector.MatchExpressions).To(BeEmpty(), "the input is unchanged")

	set := &internalv1alpha1.NamespaceInitializerSet{Initializers: merged.Initializers, Templates: templates}
	g.Expect(Names(Selected(set, map[string]string{"trial": "true"}))).To(ContainElements("a.example.com", "b.example.com"))
	for _, labels := range []map[string]string{nil, {"trial": "false"}, {v1alpha1.LabelTemplate: "team"}} {
		g.Expect(Selected(set, labels)).To(BeEmpty())
	}

	for range maxRequirements {
		everywhere.NamespaceSelector.MatchExpressions = append(everywhere.NamespaceSelector.MatchExpressions,
			v1alpha1.NamespaceSelectorRequirement{Key: "a", Operator: metav1.LabelSelectorOpExists})
	}
	configurations[0].Initializers[0].InitializerSettings = everywhere
	g.Expect(Merge(configurations, nil).TooLarge).To(BeEmpty())
	g.Expect(Merge(configurations, requirements).TooLarge).To(ConsistOf("c"), "the CRD of the set would reject it")
}
