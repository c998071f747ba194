// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// DeregistrationDelay is how long an initializer must be missing from all configurations before
// namespaces stop waiting for it. If a configuration is deleted and created again, for example by
// kubectl replace --force, no namespace may skip its initializers.
const DeregistrationDelay = 5 * time.Second

// Registry describes the initializers that namespaces wait for.
type Registry struct {
	// Registrations are the initializers that the configurations name.
	Registrations map[string]Registration
	// UnregisteredSince records since when other initializers have been missing from all
	// configurations without interruption.
	UnregisteredSince map[string]time.Time
}

// Registration is the registration of an initializer.
type Registration struct {
	// Configuration is the configuration whose settings are used.
	Configuration string
	Settings      v1alpha1.InitializerSettings
}

// ComputeRegistrations returns every initializer that any configuration names, with the settings of
// the first configuration in the order of Merge that names it.
//
// A configuration that is being deleted, or that Merge excludes, still registers its initializers:
// while it exists, a Namespace waits for them on purpose. Its settings are used if no other
// configuration names the initializer.
func ComputeRegistrations(configurations []v1alpha1.NamespaceInitializerConfiguration) map[string]Registration {
	effective := map[string]string{}
	for _, entry := range Merge(configurations).Initializers {
		effective[entry.Name] = entry.Configuration
	}
	registrations := map[string]Registration{}
	for _, configuration := range sortedByName(configurations) {
		for _, initializer := range configuration.Initializers {
			if _, ok := registrations[initializer.Name]; ok && effective[initializer.Name] != configuration.Name {
				continue
			}
			registrations[initializer.Name] = Registration{
				Configuration: configuration.Name, Settings: initializer.InitializerSettings,
			}
		}
	}
	return registrations
}

// Generations identifies the specs of the configurations, in any order. The start of a deletion
// increments the generation, too.
func Generations(configurations []v1alpha1.NamespaceInitializerConfiguration) string {
	keys := make([]string, 0, len(configurations))
	for i := range configurations {
		keys = append(keys, fmt.Sprintf("%s/%d", configurations[i].UID, configurations[i].Generation))
	}
	slices.Sort(keys)
	return strings.Join(keys, " ")
}
