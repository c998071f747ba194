// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"errors"
	"maps"
	"slices"
	"strings"
)

// Names of the controllers.
const (
	// Initialization merges the configurations, and reports the progress of new namespaces. It requires that this or
	// another manager runs Admission.
	Initialization = "initialization"
	// Admission makes API servers enforce the initializers. It is the only one that writes admission policies and webhook
	// configurations.
	Admission = "admission"
	// Finalization deletes the content of terminating namespaces.
	Finalization = "finalization"
	// Diagnosis reports why the initialization or deletion of a namespace makes no progress.
	Diagnosis = "diagnosis"
	// Templates applies NamespaceTemplates. It requires Initialization.
	Templates = "templates"
)

// wildcard selects all controllers.
const wildcard = "*"

var allControllers = []string{Admission, Diagnosis, Finalization, Initialization, Templates}

// Controllers is the set of controllers that run. Nil selects all controllers.
type Controllers map[string]bool

// Runs reports whether a controller runs.
func (c Controllers) Runs(name string) bool {
	return c == nil || c[name]
}

// readNamespaces reports whether a controller runs that reads Namespaces.
func (c Controllers) readNamespaces() bool {
	return c.Runs(Initialization) || c.Runs(Finalization) || c.Runs(Diagnosis)
}

// String returns the names of the controllers that run.
func (c Controllers) String() string {
	if c == nil {
		return wildcard
	}
	return strings.Join(slices.Sorted(maps.Keys(c)), ",")
}

// ParseControllers parses a list with the syntax of kube-controller-manager: "name" enables a
// controller, "-name" disables it, and "*" enables all controllers. It
// returns an error if a name is unknown, or if the list enables no controller.
func ParseControllers(text string) (Controllers, error) {
	enabled, disabled, hasWildcard := Controllers{}, map[string]bool{}, false
	for entry := range strings.SplitSeq(text, ",") {
		entry = strings.TrimSpace(entry)
		name, isDisabled := strings.CutPrefix(entry, "-")
		switch {
		case entry == wildcard:
			hasWildcard = true
		case !slices.Contains(allControllers, name):
			return nil, errors.New(messageUnknownController(name))
		case isDisabled:
			disabled[name] = true
		default:
			enabled[name] = true
		}
	}
	for _, name := range allControllers {
		if hasWildcard {
			enabled[name] = true
		}
		if disabled[name] {
			delete(enabled, name)
		}
	}
	if enabled[Templates] && !enabled[Initialization] {
		if !hasWildcard {
			return nil, errors.New(messageTemplatesRequireInitialization)
		}
		delete(enabled, Templates)
	}
	if len(enabled) == 0 {
		return nil, errors.New(messageNoController(text))
	}
	return enabled, nil
}
