// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestResult(t *testing.T) {
	for name, test := range map[string]struct {
		ratio, goal float64
		want        string
	}{
		"below":                     {1.01, 1.05, met},
		"equal to the goal":         {1.05, 1.05, met},
		"rounded down to the goal":  {1.0549, 1.05, met},
		"rounded up above the goal": {1.0551, 1.05, missed},
		"no goal":                   {9, 0, noGoal},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (ratioLine{ratio: test.ratio, goal: test.goal}).result(); got != test.want {
				t.Errorf("The result for ratio %v and goal %v is %q, want %q", test.ratio, test.goal, got, test.want)
			}
		})
	}
}

func TestDurationLine(t *testing.T) {
	line := newDurationLine("something", 41*time.Millisecond, " (more)", 150*time.Millisecond)
	want := valueLine{what: "something", value: "41.0 ms (more)", goal: "under 150 ms", result: met}
	if line != want {
		t.Errorf("The line is %+v, want %+v", line, want)
	}
	if line := newDurationLine("something", 30*time.Second, "", 30*time.Second); line.result != missed {
		t.Errorf("The result of 30 s with the goal \"under 30 s\" is %q, want %q", line.result, missed)
	}
}

func TestReport(t *testing.T) {
	r := &report{
		facts: []string{"a machine"},
		ratios: []ratioLine{
			{what: "Control", samples: 10, ratio: 1},
			{what: "Slow", samples: 10, ratio: 1.5, goal: 1.15, median: [2]time.Duration{1e6, 1.5e6}},
			{what: "Fast", samples: 10, ratio: 1.01, goal: 1.05},
		},
		values: []valueLine{{what: "Memory", value: "1 GiB", goal: "under 100 MiB", result: missed}},
	}
	if got, want := r.missed(), []string{"Slow", "Memory"}; !slices.Equal(got, want) {
		t.Errorf("The missed goals are %v, want %v", got, want)
	}

	text := r.text()
	slow, fast, control := strings.Index(text, "Slow"), strings.Index(text, "Fast"), strings.Index(text, "Control")
	if slow < 0 || fast < slow || control < fast {
		t.Errorf("The lines with a goal are not first, or not in the order of measurement:\n%s", text)
	}
	for _, want := range []string{"a machine", "1.50 ms", "0.50 ms", "at most 1.15", "1 GiB"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}

	columns := 0
	for line := range strings.Lines(r.markdown()) {
		if !strings.HasPrefix(line, "|") {
			columns = 0
			continue
		}
		if count := strings.Count(line, "|"); columns == 0 {
			columns = count
		} else if count != columns {
			t.Errorf("A row has %d bars, but the rows above it have %d: %s", count, columns, line)
		}
	}
}
