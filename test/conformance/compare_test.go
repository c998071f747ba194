// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onsi/ginkgo/v2/types"
	. "github.com/onsi/gomega"
)

func TestCompare(t *testing.T) {
	const user = "user"
	tests := map[string]struct {
		// states have the results of specs by state.
		states map[string]map[string]types.SpecState
		// output has the expected lines, and failures the specs that fail only with nslifecycle.
		output   string
		failures []string
	}{
		"no difference": {
			states: map[string]map[string]types.SpecState{
				without: {"a": types.SpecStatePassed, "b": types.SpecStateFailed},
				user:    {"a": types.SpecStatePassed, "b": types.SpecStateFailed},
			},
			output: "user: 1 of 2 passed\nwithout: 1 of 2 passed\n",
		},
		"fails only with nslifecycle": {
			states: map[string]map[string]types.SpecState{
				without: {"a": types.SpecStatePassed}, user: {"a": types.SpecStateTimedout},
			},
			output:   "user: 0 of 1 passed\n  a: unknown\nwithout: 1 of 1 passed\n",
			failures: []string{"a"},
		},
		"was not run with nslifecycle": {
			states: map[string]map[string]types.SpecState{
				without: {"a": types.SpecStatePassed}, user: {"a": types.SpecStateSkipped},
			},
			output:   "user: 0 of 0 passed\n  a: unknown\nwithout: 1 of 1 passed\n",
			failures: []string{"a"},
		},
		"without a report of the cluster alone": {
			states:   map[string]map[string]types.SpecState{user: {"a": types.SpecStatePassed, "b": types.SpecStateFailed}},
			output:   "user: 1 of 2 passed\n  b: unknown\n",
			failures: []string{"b"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g, dir := NewWithT(t), t.TempDir()
			for state, specs := range test.states {
				g.Expect(os.Mkdir(filepath.Join(dir, state), 0o755)).To(Succeed())
				var report types.Report
				for spec, result := range specs {
					report.SpecReports = append(report.SpecReports,
						types.SpecReport{LeafNodeType: types.NodeTypeIt, LeafNodeText: spec, State: result})
				}
				content, err := json.Marshal([]types.Report{report})
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(os.WriteFile(filepath.Join(dir, state, "apps.json"), content, 0o600)).To(Succeed())
			}
			var output strings.Builder
			err := compare(dir, &output)
			g.Expect(output.String()).To(Equal(test.output))
			if len(test.failures) == 0 {
				g.Expect(err).NotTo(HaveOccurred())
			}
			for _, spec := range test.failures {
				g.Expect(err).To(MatchError(ContainSubstring(spec + ", state user: fails only with nslifecycle")))
			}
		})
	}
	NewWithT(t).Expect(compare(t.TempDir(), &strings.Builder{})).To(MatchError(ContainSubstring("has no reports")))
}
