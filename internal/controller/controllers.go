// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The controllers that can be chosen.
const (
	// Initialization is the birth of namespaces: it feeds the admission policies and tells
	// how far each namespace is.
	Initialization = "initialization"
	// Finalization is their death: it empties namespaces that are deleted.
	Finalization = "finalization"
	// Diagnosis tells why a namespace does not get on with either, whoever works on it.
	Diagnosis = "diagnosis"
	// Expiry deletes namespaces at a time that was set for them. It is off by default.
	Expiry = "expiry"
)

const allControllers = "*"

// Those that "*" stands for, and those that have to be named.
var (
	onByDefault  = []string{Diagnosis, Finalization, Initialization}
	offByDefault = []string{Expiry}
)

// Controllers are the names of those that run. Nil means all that are on by default.
type Controllers map[string]bool

// Runs tells whether a controller runs.
func (c Controllers) Runs(name string) bool {
	if c == nil {
		return slices.Contains(onByDefault, name)
	}
	return c[name]
}

// String lists those that run.
func (c Controllers) String() string {
	if c == nil {
		return allControllers
	}
	return strings.Join(slices.Sorted(maps.Keys(c)), ",")
}

// ParseControllers reads a list in the manner of kube-controller-manager: "name" stands
// for one, "-name" for all but it where "*" is there too, and "*" for all that are on by
// default. It returns an error for a name that is unknown, and where nothing would run.
func ParseControllers(text string) (Controllers, error) {
	known := slices.Sorted(slices.Values(slices.Concat(onByDefault, offByDefault)))
	runs, excluded, all := Controllers{}, map[string]bool{}, false
	for entry := range strings.SplitSeq(text, ",") {
		entry = strings.TrimSpace(entry)
		name, isExcluded := strings.CutPrefix(entry, "-")
		switch {
		case entry == allControllers:
			all = true
		case !slices.Contains(known, name):
			return nil, fmt.Errorf("there is no controller %q; the list takes %s, "+
				"each of them with - in front to leave it out, and * for all but %s",
				name, strings.Join(known, ", "), strings.Join(offByDefault, ", "))
		case isExcluded:
			excluded[name] = true
		default:
			runs[name] = true
		}
	}
	for _, name := range known {
		if all && slices.Contains(onByDefault, name) {
			runs[name] = true
		}
		if excluded[name] {
			delete(runs, name)
		}
	}
	if len(runs) == 0 {
		return nil, fmt.Errorf("the list of controllers %q leaves none to run", text)
	}
	return runs, nil
}
