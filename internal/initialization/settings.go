// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"cmp"
	"slices"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// Registration is what the configurations say about an initializer.
type Registration struct {
	// Configuration is the one whose settings count.
	Configuration string
	Settings      v1alpha1.InitializerSettings
}

// Registered returns every initializer that any configuration names. The settings are those of
// the first configuration in the order of Merge that names it.
//
// A configuration that is being deleted, or that Merge leaves out, names its initializers all the
// same: as long as it is there, a Namespace that waits for one does not do so by mistake. Its
// settings count where no other one names the initializer.
func Registered(configurations []v1alpha1.NamespaceInitializerConfiguration) map[string]Registration {
	sorted := slices.Clone(configurations)
	slices.SortFunc(sorted, func(a, b v1alpha1.NamespaceInitializerConfiguration) int {
		return cmp.Compare(a.Name, b.Name)
	})
	inForce := map[string]string{}
	for _, entry := range Merge(configurations).Initializers {
		inForce[entry.Name] = entry.Configuration
	}
	registered := map[string]Registration{}
	for _, configuration := range sorted {
		for _, initializer := range configuration.Initializers {
			_, isKnown := registered[initializer.Name]
			if isKnown && inForce[initializer.Name] != configuration.Name {
				continue
			}
			registered[initializer.Name] = Registration{
				Configuration: configuration.Name, Settings: initializer.InitializerSettings,
			}
		}
	}
	return registered
}

// Unregistered returns those of the names that no configuration names.
func Unregistered(names []string, registered map[string]Registration) []string {
	var missing []string
	for _, name := range names {
		if _, found := registered[name]; !found {
			missing = append(missing, name)
		}
	}
	return missing
}
