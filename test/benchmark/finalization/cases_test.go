// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"

	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
)

func namesOf(list []scenario) []string {
	names := make([]string, 0, len(list))
	for _, s := range list {
		names = append(names, s.name)
	}
	return names
}

func TestScenariosAreUnique(t *testing.T) {
	names, titles := map[string]bool{}, map[string]bool{}
	for _, s := range scenarios() {
		if names[s.name] || titles[s.title] {
			t.Errorf("Two cases have the name %s or the title %q", s.name, s.title)
		}
		names[s.name], titles[s.title] = true, true
		if s.namespaces < 1 {
			t.Errorf("Case %s deletes no namespace", s.name)
		}
		if s.content.held > 0 && s.crds < 1 || s.isCrowded && s.crds < manyCRDs/2 {
			t.Errorf("Case %s has too few CRDs for its custom resources", s.name)
		}
		if s.discoveryDelay > 0 && !s.isAggregated {
			t.Errorf("Case %s has no aggregated API server whose discovery is slow", s.name)
		}
	}
	for _, g := range goals() {
		if !names[g.scenario] || g.reference != "" && !names[g.reference] {
			t.Errorf("Goal %q refers to an unknown case: %s or %s", g.what, g.scenario, g.reference)
		}
	}
	for _, g := range growths() {
		if !names[g.from] || !names[g.to] {
			t.Errorf("Growth %q refers to an unknown case: %s or %s", g.what, g.from, g.to)
		}
	}
}

func TestSelectScenarios(t *testing.T) {
	for name, test := range map[string]struct {
		names     string
		onlyCheap bool
		want      []string
		isError   bool
	}{
		"cases in the order of the report": {"pods-20,empty", false, []string{"empty", "pods-20"}, false},
		"an expensive case with --quick":   {many500, true, []string{many500}, false},
		"an unknown case":                  {"empty,nonsense", false, nil, true},
		"all":                              {"", false, namesOf(scenarios()), false},
		"the cheap cases": {"", true,
			[]string{"empty", emptyWith100CRDs, oneThousandMaps, "finalizers-1000", twentyPods}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := selectScenarios(test.names, test.onlyCheap)
			if (err != nil) != test.isError {
				t.Fatalf("The error is %v, want error %v", err, test.isError)
			}
			if !test.isError && !slices.Equal(namesOf(got), test.want) {
				t.Errorf("The cases are %v, want %v", namesOf(got), test.want)
			}
		})
	}
}

func TestComputeOrderPutsTheCrowdLast(t *testing.T) {
	ordered := computeOrder(scenarios())
	if len(ordered) != len(scenarios()) {
		t.Fatalf("There are %d cases, want %d", len(ordered), len(scenarios()))
	}
	wasCrowded := false
	for _, s := range ordered {
		if wasCrowded && !s.isCrowded {
			t.Errorf("%s comes after a crowded case", s.name)
		}
		wasCrowded = s.isCrowded
	}
	if first, last := ordered[0].name, ordered[len(ordered)-1].name; first != "empty" || last != crowded+many500Full {
		t.Errorf("The first case is %s, and the last case is %s", first, last)
	}
}

func TestComputeSidesAlternates(t *testing.T) {
	if a, b := computeSides(0, false, false), computeSides(1, false, false); a[0] == b[0] || a[0] != b[1] {
		t.Errorf("The order is %v and then %v, want the reverse order in the second round", a, b)
	}
	if got := computeSides(1, true, false); !slices.Equal(got, []int{peer}) {
		t.Errorf("The sides are %v, want only the peer", got)
	}
	if got := computeSides(0, false, true); !slices.Equal(got, []int{ours}) {
		t.Errorf("The sides are %v, want only nslifecycle", got)
	}
}

func TestComplete(t *testing.T) {
	for name, test := range map[string]struct {
		options options
		rounds  int
		servers []int
		isError bool
	}{
		"defaults":                   {options{rounds: 3, identities: both}, 3, []int{1, 2}, false},
		"--quick":                    {options{rounds: 3, identities: both, Flags: harness.Flags{Quick: true}}, 1, []int{1}, false},
		"--quick, two API servers":   {options{rounds: 3, identities: "2", Flags: harness.Flags{Quick: true}, setByUser: map[string]bool{"identities": true}}, 1, []int{2}, false},
		"--quick, more rounds":       {options{rounds: 5, identities: "1", Flags: harness.Flags{Quick: true}, setByUser: map[string]bool{"rounds": true}}, 5, []int{1}, false},
		"no rounds":                  {options{identities: "1"}, 0, nil, true},
		"three API servers":          {options{rounds: 1, identities: "3"}, 0, nil, true},
		"two exclusive flags":        {options{rounds: 1, identities: "1", peerOnly: true, oursOnly: true}, 0, nil, true},
		"a case that does not exist": {options{rounds: 1, identities: "1", cases: "nonsense"}, 0, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.options.complete()
			if (err != nil) != test.isError {
				t.Fatalf("The error is %v, want error %v", err, test.isError)
			}
			if !test.isError && (test.options.rounds != test.rounds || !slices.Equal(test.options.servers, test.servers)) {
				t.Errorf("There are %d rounds with %v API servers, want %d with %v",
					test.options.rounds, test.options.servers, test.rounds, test.servers)
			}
		})
	}
}
