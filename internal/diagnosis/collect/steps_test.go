// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"slices"
	"testing"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/rules"
)

func TestSteps(t *testing.T) {
	for stage, all := range steps {
		var facts []diagnosis.Fact
		for _, one := range all {
			for _, fact := range one.after {
				if !slices.Contains(facts, fact) {
					t.Errorf("%s: the step for %s needs %s, which no earlier step collects", stage, one.fact, fact)
				}
			}
			facts = append(facts, one.fact)
		}
		for _, rule := range rules.All() {
			for _, fact := range rule.Needs {
				if rule.Stage == stage && !slices.Contains(facts, fact) {
					t.Errorf("%s: no step collects %s, which rule %s needs", stage, fact, rule.Name)
				}
			}
		}
	}
}

func TestSelectSteps(t *testing.T) {
	all := steps[diagnosis.StageTerminating]
	var got []diagnosis.Fact
	for _, one := range selectSteps(all, []diagnosis.Fact{diagnosis.FactAdmission, diagnosis.FactLeases}) {
		got = append(got, one.fact)
	}
	want := []diagnosis.Fact{
		diagnosis.FactResourceTypes, diagnosis.FactAPIServices, diagnosis.FactContent, diagnosis.FactDryRuns,
		diagnosis.FactLeases, diagnosis.FactAdmission,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if none := selectSteps(all, nil); len(none) > 0 {
		t.Errorf("got %v without needs", none)
	}
}
