// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"cmp"
	"slices"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// Merged is the outcome of Merge.
type Merged struct {
	// Initializers is the effective list, in order. Its length is at most
	// v1alpha1.MaxSetInitializers.
	Initializers []v1alpha1.EffectiveInitializer
	// LeftOut names the configurations that do not fit, sorted. None of the
	// initializers that only they name is in the list.
	LeftOut []string
}

// Merge makes one list of all configurations, as the Namespace Initializer KEP
// lays down: sorted by the name of the configuration, with the order inside one
// kept. An initializer that several configurations name keeps its first place.
// Configurations that are being deleted do not count.
//
// A configuration that would take the list over v1alpha1.MaxSetInitializers is
// left out as a whole: half a configuration may be worse than none.
func Merge(configurations []v1alpha1.NamespaceInitializerConfiguration) Merged {
	sorted := slices.Clone(configurations)
	slices.SortFunc(sorted, func(a, b v1alpha1.NamespaceInitializerConfiguration) int {
		return cmp.Compare(a.Name, b.Name)
	})

	merged := Merged{}
	seen := map[string]bool{}
	for _, configuration := range sorted {
		if configuration.DeletionTimestamp != nil {
			continue
		}
		var added []v1alpha1.EffectiveInitializer
		for _, initializer := range configuration.Initializers {
			entry := v1alpha1.EffectiveInitializer{Name: initializer.Name, Configuration: configuration.Name}
			if !seen[initializer.Name] && !slices.Contains(added, entry) {
				added = append(added, entry)
			}
		}
		if len(merged.Initializers)+len(added) > v1alpha1.MaxSetInitializers {
			merged.LeftOut = append(merged.LeftOut, configuration.Name)
			continue
		}
		for _, initializer := range added {
			seen[initializer.Name] = true
		}
		merged.Initializers = append(merged.Initializers, added...)
	}
	return merged
}

// Names returns the names of the initializers, in order.
func Names(initializers []v1alpha1.EffectiveInitializer) []string {
	names := make([]string, 0, len(initializers))
	for _, initializer := range initializers {
		names = append(names, initializer.Name)
	}
	return names
}
