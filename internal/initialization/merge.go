// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"cmp"
	"encoding/json"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"

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
	// TooLarge names those of LeftOut for whose selectors there is no room, sorted.
	TooLarge []string
	// Overruled tells, by the name of the configuration, which of its initializers have other
	// settings in a configuration that sorts before it, in its order. Those count.
	Overruled map[string][]v1alpha1.EffectiveInitializer
}

// maxSetBytes is the most that the entries of the set can have as JSON. It leaves room for the
// set's managedFields, which repeat some of it, below the 1.5 MiB that etcd takes in a request.
const maxSetBytes = 512 << 10

// Merge makes one list of all configurations, as the Namespace Initializer KEP
// lays down: sorted by the name of the configuration, with the order inside one
// kept. An initializer that several configurations name keeps its first place, and
// the settings that it has there. Configurations that are being deleted do not count.
//
// A configuration that would take the list over v1alpha1.MaxSetInitializers, or over
// maxSetBytes, is left out as a whole: half a configuration may be worse than none.
func Merge(configurations []v1alpha1.NamespaceInitializerConfiguration) Merged {
	sorted := slices.Clone(configurations)
	slices.SortFunc(sorted, func(a, b v1alpha1.NamespaceInitializerConfiguration) int {
		return cmp.Compare(a.Name, b.Name)
	})

	merged := Merged{}
	places := map[string]int{}
	size := 0
	for _, configuration := range sorted {
		if configuration.DeletionTimestamp != nil {
			continue
		}
		added, overruled, addedSize := merged.additions(&configuration, places)
		if len(merged.Initializers)+len(added) > v1alpha1.MaxSetInitializers {
			merged.LeftOut = append(merged.LeftOut, configuration.Name)
			continue
		}
		if size+addedSize > maxSetBytes {
			merged.LeftOut = append(merged.LeftOut, configuration.Name)
			merged.TooLarge = append(merged.TooLarge, configuration.Name)
			continue
		}
		for i, initializer := range added {
			places[initializer.Name] = len(merged.Initializers) + i
		}
		merged.Initializers = append(merged.Initializers, added...)
		size += addedSize
		if len(overruled) > 0 {
			if merged.Overruled == nil {
				merged.Overruled = map[string][]v1alpha1.EffectiveInitializer{}
			}
			merged.Overruled[configuration.Name] = overruled
		}
	}
	return merged
}

// additions returns what a configuration adds to the list, with its size as JSON, and those
// entries of the list that overrule its settings.
func (m *Merged) additions(
	configuration *v1alpha1.NamespaceInitializerConfiguration, places map[string]int,
) (added, overruled []v1alpha1.EffectiveInitializer, size int) {
	for _, initializer := range configuration.Initializers {
		if place, found := places[initializer.Name]; found {
			if first := m.Initializers[place]; !sameSettings(first.InitializerSettings, initializer.InitializerSettings) {
				overruled = append(overruled, first)
			}
			continue
		}
		if slices.ContainsFunc(added, func(e v1alpha1.EffectiveInitializer) bool { return e.Name == initializer.Name }) {
			continue
		}
		entry := v1alpha1.EffectiveInitializer{
			Name: initializer.Name, Configuration: configuration.Name,
			InitializerSettings: *initializer.InitializerSettings.DeepCopy(),
		}
		added = append(added, entry)
		// The types have nothing in them that could not be encoded.
		encoded, _ := json.Marshal(entry)
		size += len(encoded)
	}
	return added, overruled, size
}

// sameSettings tells whether two settings come to the same, defaults included.
func sameSettings(a, b v1alpha1.InitializerSettings) bool {
	for _, settings := range []*v1alpha1.InitializerSettings{&a, &b} {
		if settings.FailurePolicy == nil && settings.TimeoutSeconds != nil {
			fail := v1alpha1.InitializerFail
			settings.FailurePolicy = &fail
		}
	}
	return apiequality.Semantic.DeepEqual(a, b)
}

// Names returns the names of the initializers, in order.
func Names(initializers []v1alpha1.EffectiveInitializer) []string {
	names := make([]string, 0, len(initializers))
	for _, initializer := range initializers {
		names = append(names, initializer.Name)
	}
	return names
}
