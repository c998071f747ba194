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
	// Expiry deletes namespaces at the time set in their annotations. It is off by default.
	Expiry = "expiry"
)

// wildcard selects all controllers that are on by default.
const wildcard = "*"

var (
	onByDefault  = []string{Admission, Diagnosis, Finalization, Initialization, Templates}
	offByDefault = []string{Expiry}
)

// Controllers is the set of controllers that run. Nil selects the controllers that are on by
// default.
type Controllers map[string]bool

// Runs reports whether a controller runs.
func (c Controllers) Runs(name string) bool {
	if c == nil {
		return slices.Contains(onByDefault, name)
	}
	return c[name]
}

// readNamespaces reports whether a controller runs that reads Namespaces.
func (c Controllers) readNamespaces() bool {
	return c.Runs(Initialization) || c.Runs(Finalization) || c.Runs(Diagnosis) || c.Runs(Expiry)
}

// String returns the names of the controllers that run.
func (c Controllers) String() string {
	if c == nil {
		return wildcard
	}
	return strings.Join(slices.Sorted(maps.Keys(c)), ",")
}

func allControllers() []string {
	return slices.Sorted(slices.Values(slices.Concat(onByDefault, offByDefault)))
}

// ParseControllers parses a list with the syntax of kube-controller-manager: "name" enables a
// controller, "-name" disables it, and "*" enables all controllers that are on by default. It
// returns an error if a name is unknown, or if the list enables no controller.
func ParseControllers(text string) (Controllers, error) {
	enabled, disabled, hasWildcard := Controllers{}, map[string]bool{}, false
	for entry := range strings.SplitSeq(text, ",") {
		entry = strings.TrimSpace(entry)
		name, isDisabled := strings.CutPrefix(entry, "-")
		switch {
		case entry == wildcard:
			hasWildcard = true
		case !slices.Contains(allControllers(), name):
			return nil, errors.New(msgUnknownController(name))
		case isDisabled:
			disabled[name] = true
		default:
			enabled[name] = true
		}
	}
	for _, name := range allControllers() {
		if hasWildcard && slices.Contains(onByDefault, name) {
			enabled[name] = true
		}
		if disabled[name] {
			delete(enabled, name)
		}
	}
	if enabled[Templates] && !enabled[Initialization] {
		if !hasWildcard {
			return nil, errors.New(msgTemplatesRequireInitialization)
		}
		delete(enabled, Templates)
	}
	if len(enabled) == 0 {
		return nil, errors.New(msgNoController(text))
	}
	return enabled, nil
}
