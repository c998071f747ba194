// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
)

// Results of a goal.
const (
	noGoal = "-"
	met    = "met"
	missed = "missed"
)

// slope returns the time that each initializer of a chain adds to the median, by least squares.
func slope(medians map[int]time.Duration) time.Duration {
	var n, sumX, sumY, sumXX, sumXY float64
	for length, median := range medians {
		x, y := float64(length), float64(median)
		n, sumX, sumY, sumXX, sumXY = n+1, sumX+x, sumY+y, sumXX+x*x, sumXY+x*y
	}
	if divisor := n*sumXX - sumX*sumX; divisor != 0 {
		return time.Duration((n*sumXY - sumX*sumY) / divisor)
	}
	return 0
}

// evaluate returns the goal, and the result for a duration. Only pkg/initializer has goals.
func evaluate(w way, took, goal time.Duration) (words, result string) {
	words = "under " + harness.FormatDuration(goal)
	switch {
	case w.how != withLibrary:
		return noGoal, noGoal
	case took < goal:
		return words, met
	}
	return words, missed
}

// tables returns the report and the missed goals.
func (r *outcome) tables() ([]harness.Table, []string) {
	chains := harness.Table{
		Title: "Median time from creation until users can write, and until Initializing=False, by chain length",
		Header: []string{
			"Initializers", "1", "2", "4", "8",
			"Per initializer, until users can write", "Per initializer, until Initializing=False", "Goal", "Result",
		},
		Note: "Per initializer: the slope of the medians over the chain length. The goal applies to the longer duration.",
	}
	crowds := harness.Table{
		Title: fmt.Sprintf("%d namespaces at once, through %d initializers, until all are Initializing=False",
			r.atOnce, chainAtOnce),
		Header: []string{
			"Initializers", "Median of the rounds", "Worst", "Processor time", "Times the bare client", "Goal", "Result",
		},
		Note: "Processor time is the user and system time of the initializers: median of the rounds, on Linux only. " +
			"The bare client sends one creation, one patch for each initializer and one write of the status. " +
			"The goal is twice its median and applies to the median.",
	}
	bare := harness.Median(r.bare)
	crowds.Rows = append(crowds.Rows, []string{
		"Bare client, without the manager", harness.FormatDuration(bare), harness.FormatDuration(slices.Max(r.bare)),
		noGoal, "1.00", noGoal, noGoal,
	})
	var without []string
	add := func(table *harness.Table, w way, took, goal time.Duration, cells ...string) {
		words, result := evaluate(w, took, goal)
		if result == missed {
			without = append(without, table.Title+": "+w.String())
		}
		table.Rows = append(table.Rows, append(append([]string{w.String()}, cells...), words, result))
	}
	for _, w := range ways {
		writable, ready := map[int]time.Duration{}, map[int]time.Duration{}
		var cells []string
		for _, length := range lengths {
			taken := r.chains[w][length]
			writable[length], ready[length] = harness.Median(taken.writable), harness.Median(taken.ready)
			cells = append(cells, harness.FormatDuration(writable[length])+", "+harness.FormatDuration(ready[length]))
		}
		cells = append(cells, harness.FormatDuration(slope(writable)), harness.FormatDuration(slope(ready)))
		add(&chains, w, max(slope(writable), slope(ready)), goalEach, cells...)
		median := harness.Median(r.crowds[w])
		add(&crowds, w, median, goalBare*bare, harness.FormatDuration(median),
			harness.FormatDuration(slices.Max(r.crowds[w])), harness.FormatDuration(harness.Median(r.cpu[w])),
			fmt.Sprintf("%.2f", median.Seconds()/bare.Seconds()))
	}
	return []harness.Table{chains, crowds}, without
}
