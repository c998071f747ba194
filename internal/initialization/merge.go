// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"cmp"
	"encoding/json"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/admission/policies"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/templateset"
)

// Merged is the result of Merge.
type Merged struct {
	// Initializers is the effective list, in order. Its length is at most
	// internalv1alpha1.MaxInitializers.
	Initializers []internalv1alpha1.EffectiveInitializer
	// WaitingSubjects are the waitingSubjects of all configurations that are not excluded, sorted and
	// without duplicates. Their number is at most internalv1alpha1.MaxWaitingSubjects.
	WaitingSubjects []v1alpha1.Subject
	// Excluded are the names of the configurations that do not fit, sorted. Initializers that only
	// these configurations register are not in the list.
	Excluded []string
	// TooLarge are the names in Excluded of configurations that exceed another limit than the number of initializers,
	// sorted.
	TooLarge []string
	// limit are the requirements that all initializers have in addition.
	limit []v1alpha1.NamespaceSelectorRequirement
	// Overridden maps the name of a configuration to the effective entries that override settings of
	// its initializers.
	Overridden map[string][]internalv1alpha1.EffectiveInitializer
}

// maxSetBytes is the maximum size of the entries of the set in JSON. Even with managedFields, which
// repeat part of the entries, the set stays below 1.5 MiB, the maximum request size of etcd.
const maxSetBytes = 512 << 10

// Merge merges all configurations into one list as the Namespace Initializer KEP defines it: the
// configurations are sorted by name, and the order within each configuration is preserved. If
// several configurations register an initializer, the first entry determines its position and its
// settings. Configurations that are being deleted are ignored.
//
// With a limit, the initializers select only Namespaces that also meet these requirements.
//
// A configuration that would make the list exceed internalv1alpha1.MaxInitializers or maxSetBytes, a selector exceed
// maxRequirements, or the subjects exceed internalv1alpha1.MaxWaitingSubjects or MaxConfinedBytes, is excluded
// completely, because running only some of its initializers can be worse than running none.
func Merge(
	configurations []v1alpha1.NamespaceInitializerConfiguration, limit []v1alpha1.NamespaceSelectorRequirement,
) Merged {
	merged := Merged{limit: limit, Overridden: map[string][]internalv1alpha1.EffectiveInitializer{}}
	positions := map[string]int{}
	size := 0
	for _, configuration := range sortedByName(configurations) {
		if configuration.DeletionTimestamp != nil {
			continue
		}
		added, overridden, addedSize := merged.additions(&configuration, positions)
		if len(merged.Initializers)+len(added) > internalv1alpha1.MaxInitializers {
			merged.Excluded = append(merged.Excluded, configuration.Name)
			continue
		}
		waiting := slices.Concat(merged.WaitingSubjects, ComparableSubjects(configuration.WaitingSubjects))
		slices.SortFunc(waiting, compareSubjects)
		waiting = slices.Compact(waiting)
		if size+addedSize > maxSetBytes || slices.ContainsFunc(added, hasTooManyRequirements) ||
			len(waiting) > internalv1alpha1.MaxWaitingSubjects || !fitsConfinement(merged.Initializers, added) {
			merged.Excluded = append(merged.Excluded, configuration.Name)
			merged.TooLarge = append(merged.TooLarge, configuration.Name)
			continue
		}
		for i, initializer := range added {
			positions[initializer.Name] = len(merged.Initializers) + i
		}
		merged.Initializers = append(merged.Initializers, added...)
		size += addedSize
		merged.WaitingSubjects = waiting
		if len(overridden) > 0 {
			merged.Overridden[configuration.Name] = overridden
		}
	}
	return merged
}

// fitsConfinement reports whether the confined subjects fit into the policy confined-initializers.
func fitsConfinement(initializers, added []internalv1alpha1.EffectiveInitializer) bool {
	hasSubjects := func(entry internalv1alpha1.EffectiveInitializer) bool { return len(entry.Subjects) > 0 }
	if !slices.ContainsFunc(added, hasSubjects) {
		return true
	}
	return policies.ComputeConfined(slices.Concat(initializers, added), "").Size() <= internalv1alpha1.MaxConfinedBytes
}

func sortedByName(
	configurations []v1alpha1.NamespaceInitializerConfiguration,
) []v1alpha1.NamespaceInitializerConfiguration {
	return slices.SortedFunc(slices.Values(configurations), func(a, b v1alpha1.NamespaceInitializerConfiguration) int {
		return cmp.Compare(a.Name, b.Name)
	})
}

// ComparableSubjects returns subjects without apiGroup, which the kind determines.
func ComparableSubjects(subjects []v1alpha1.Subject) []v1alpha1.Subject {
	subjects = slices.Clone(subjects)
	for i := range subjects {
		subjects[i].APIGroup = ""
	}
	return subjects
}

func compareSubjects(a, b v1alpha1.Subject) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// additions returns the entries that a configuration adds to the list, the entries in the list that
// override its settings, and the size of the added entries in JSON.
func (m *Merged) additions(
	configuration *v1alpha1.NamespaceInitializerConfiguration, positions map[string]int,
) (added, overridden []internalv1alpha1.EffectiveInitializer, size int) {
	for _, initializer := range configuration.Initializers {
		if position, ok := positions[initializer.Name]; ok {
			first := m.Initializers[position]
			if !apiequality.Semantic.DeepEqual(first.InitializerSettings, limited(initializer.InitializerSettings, m.limit)) {
				overridden = append(overridden, first)
			}
			continue
		}
		isRepeated := func(e internalv1alpha1.EffectiveInitializer) bool { return e.Name == initializer.Name }
		if slices.ContainsFunc(added, isRepeated) {
			continue
		}
		entry := internalv1alpha1.EffectiveInitializer{
			Name: initializer.Name, Configuration: configuration.Name,
			InitializerSettings: limited(initializer.InitializerSettings, m.limit),
		}
		added = append(added, entry)
		// Encoding this type cannot fail.
		encoded, _ := json.Marshal(entry)
		size += len(encoded)
	}
	return added, overridden, size
}

// AddTemplates adds the initializer of templates to the list if there are templates, first unless a
// configuration registers it, and returns the part of the templates that the admission policies use. See
// templateset.Compute.
func (m *Merged) AddTemplates(
	templates []v1alpha1.NamespaceTemplate, current map[string]*v1alpha1.NamespaceTemplateSpec,
) []internalv1alpha1.EffectiveTemplate {
	effective := templateset.Compute(templates, current)
	isNamed := slices.Contains(Names(m.Initializers), v1alpha1.TemplatesInitializer)
	if len(effective) > 0 && !isNamed {
		// The caller's list shares its array.
		m.Initializers = slices.Concat(
			[]internalv1alpha1.EffectiveInitializer{{
				Name:                v1alpha1.TemplatesInitializer,
				InitializerSettings: limited(v1alpha1.DefaultInitializerSettings(), m.limit),
			}}, m.Initializers)
	}
	return effective
}

// Names returns the names of the initializers, in order.
func Names(initializers []internalv1alpha1.EffectiveInitializer) []string {
	names := make([]string, 0, len(initializers))
	for _, initializer := range initializers {
		names = append(names, initializer.Name)
	}
	return names
}
