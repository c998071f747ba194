// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/onsi/ginkgo/v2/types"
	"sigs.k8s.io/yaml"
)

//go:embed differences.yaml
var differences []byte

// results has whether specs have passed, by the text of the spec.
type results map[string]bool

func (r results) count() string {
	passed := 0
	for _, hasPassed := range r {
		if hasPassed {
			passed++
		}
	}
	return fmt.Sprintf("%d of %d passed", passed, len(r))
}

// readReport reads a report of ginkgo. A spec that was interrupted has failed.
func readReport(path string) (results, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("failed to read a report: %w", err)
	}
	var reports []types.Report
	if err := json.Unmarshal(content, &reports); err != nil {
		return nil, fmt.Errorf("failed to decode %s: %w", path, err)
	}
	found := results{}
	for _, report := range reports {
		for _, spec := range report.SpecReports {
			if spec.LeafNodeType == types.NodeTypeIt && !spec.State.Is(types.SpecStateSkipped|types.SpecStatePending) {
				found[strings.TrimSpace(spec.FullText())] = spec.State.Is(types.SpecStatePassed)
			}
		}
	}
	return found, nil
}

// compare prints the results of all states in a directory. It returns an error if a spec fails only with nslifecycle,
// and the cause is unknown. Without a report of the state without, all specs are expected to pass.
func compare(dir string, out io.Writer) error {
	states := map[string]results{}
	paths, err := filepath.Glob(filepath.Join(dir, "*", "*.json"))
	if err != nil {
		return fmt.Errorf("failed to list the reports: %w", err)
	}
	for _, path := range paths {
		found, err := readReport(path)
		if err != nil {
			return err
		}
		state := filepath.Base(filepath.Dir(path))
		if states[state] == nil {
			states[state] = results{}
		}
		maps.Copy(states[state], found)
	}
	if len(states) == 0 {
		return fmt.Errorf("%s has no reports", dir)
	}
	expected, ok := states[without]
	if !ok {
		expected = allOf(states)
	}
	causes := map[string]string{}
	if err := yaml.UnmarshalStrict(differences, &causes); err != nil {
		return fmt.Errorf("failed to decode the known differences: %w", err)
	}
	var unknown []error
	for _, state := range slices.Sorted(maps.Keys(states)) {
		fmt.Fprintf(out, "%s: %s\n", state, states[state].count())
		for _, spec := range differing(expected, states[state]) {
			cause, ok := causes[spec]
			if !ok {
				cause = "unknown"
				unknown = append(unknown, fmt.Errorf("%s, state %s: fails only with nslifecycle", spec, state))
			}
			fmt.Fprintf(out, "  %s: %s\n", spec, cause)
		}
	}
	return errors.Join(unknown...)
}

// allOf returns all specs, as if they had passed.
func allOf(states map[string]results) results {
	all := results{}
	for _, found := range states {
		for spec := range found {
			all[spec] = true
		}
	}
	return all
}

// differing returns the specs, sorted, that are expected to pass, but have failed or were not run.
func differing(expected, found results) []string {
	var specs []string
	for spec, hasPassed := range expected {
		if hasPassed && !found[spec] {
			specs = append(specs, spec)
		}
	}
	slices.Sort(specs)
	return specs
}
