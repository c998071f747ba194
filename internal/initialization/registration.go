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
// namespaces stop waiting for it. The delay ensures that no namespace skips an initializer if its
// configuration is deleted and created again, for example by kubectl replace --force.
const DeregistrationDelay = 5 * time.Second

// Registry describes the initializers that namespaces wait for.
type Registry struct {
	// Registrations contains the initializers that the configurations register, by initializer name.
	Registrations map[string]Registration
	// DeregisteredSince contains the time since which each other initializer has been missing from
	// all configurations.
	DeregisteredSince map[string]time.Time
}

// Registration is the registration of an initializer.
type Registration struct {
	// Configuration is the name of the configuration that provides the settings; empty for the initializer
	// of templates if no configuration registers it.
	Configuration string
	Settings      v1alpha1.InitializerSettings
}

// ComputeRegistrations returns every initializer that a configuration registers. The settings are those
// in the first configuration, in the order of Merge, that registers the initializer.
//
// A configuration that is being deleted, or that Merge excludes, still registers its initializers:
// Namespaces must wait for them while the configuration exists. Its settings are used only if no
// other configuration registers the initializer.
//
// If the operator applies templates, it registers their initializer itself.
func ComputeRegistrations(
	configurations []v1alpha1.NamespaceInitializerConfiguration, hasTemplates bool,
) map[string]Registration {
	effective := map[string]string{}
	for _, entry := range Merge(configurations, nil).Initializers {
		effective[entry.Name] = entry.Configuration
	}
	registrations := map[string]Registration{}
	if hasTemplates {
		registrations[v1alpha1.TemplatesInitializer] = Registration{}
	}
	for _, configuration := range sortedByName(configurations) {
		for _, initializer := range configuration.Initializers {
			if registrations[initializer.Name].Configuration != "" && effective[initializer.Name] != configuration.Name {
				continue
			}
			registrations[initializer.Name] = Registration{
				Configuration: configuration.Name, Settings: initializer.InitializerSettings,
			}
		}
	}
	return registrations
}

// Generations returns a string that identifies the current generations of the configurations,
// regardless of their order. It changes when a deletion starts, because the API server then
// increments the generation.
func Generations(configurations []v1alpha1.NamespaceInitializerConfiguration) string {
	keys := make([]string, 0, len(configurations))
	for i := range configurations {
		keys = append(keys, fmt.Sprintf("%s/%d", configurations[i].UID, configurations[i].Generation))
	}
	slices.Sort(keys)
	return strings.Join(keys, " ")
}
