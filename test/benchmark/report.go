// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
)

// Results of a goal.
const (
	met    = "met"
	missed = "missed"
	noGoal = "-"
)

// report is the outcome of a run.
type report struct {
	// facts describe the machine and the versions.
	facts []string
	// ratios compare the server with nslifecycle to the server without it.
	ratios []ratioLine
	// values are measured only on the server with nslifecycle.
	values []valueLine
}

// ratioLine is one comparison. If goal is 0, the comparison has no goal.
type ratioLine struct {
	what         string
	samples      int
	median, high [2]time.Duration
	ratio        float64
	range95      interval
	controls     [2]float64
	goal         float64
}

// valueLine is a measurement on one server, formatted for the report.
type valueLine struct {
	what, value, goal, result string
}

func newRatioLine(what string, c *comparison, goal float64) ratioLine {
	line := ratioLine{what: what, ratio: c.ratio(), range95: c.interval(), goal: goal}
	for side := range line.median {
		samples := c.all(side)
		line.samples = len(samples)
		line.median[side] = harness.Median(samples)
		line.high[side] = harness.Percentile(samples, 0.95)
		line.controls[side] = c.control(side)
	}
	return line
}

// result compares the ratio with the goal after rounding both as in the report.
func (l ratioLine) result() string {
	switch {
	case l.goal == 0:
		return noGoal
	case math.Round(l.ratio*100) <= math.Round(l.goal*100):
		return met
	}
	return missed
}

// missed returns the names of the lines whose goal was missed.
func (r *report) missed() []string {
	var names []string
	for _, line := range r.ratios {
		if line.result() == missed {
			names = append(names, line.what)
		}
	}
	for _, line := range r.values {
		if line.result == missed {
			names = append(names, line.what)
		}
	}
	return names
}

func (r *report) tables() []harness.Table {
	ratios := harness.Table{
		Title: "Requests with and without nslifecycle",
		Header: []string{
			"Request", "Samples each", "Median without", "Median with", "Difference", "95th percentile",
			"Ratio of medians (95% CI)", "Same server twice", "Goal", "Result",
		},
		Note: "If a column contains two figures, the first is without nslifecycle. \"Same server twice\" is the ratio " +
			"of one half of the samples to the other: its difference from 1 is noise.",
	}
	// Lines with a goal come first. Otherwise, lines are in the order of measurement.
	lines := slices.Clone(r.ratios)
	slices.SortStableFunc(lines, func(a, b ratioLine) int {
		return cmp.Compare(min(b.goal, 1), min(a.goal, 1))
	})
	for _, line := range lines {
		goal := noGoal
		if line.goal > 0 {
			goal = fmt.Sprintf("at most %.2f", line.goal)
		}
		ratios.Rows = append(ratios.Rows, []string{
			line.what, fmt.Sprint(line.samples),
			harness.FormatDuration(line.median[without]), harness.FormatDuration(line.median[with]),
			harness.FormatDuration(line.median[with] - line.median[without]),
			harness.FormatDuration(line.high[without]) + ", " + harness.FormatDuration(line.high[with]),
			fmt.Sprintf("%.2f (%.2f to %.2f)", line.ratio, line.range95.low, line.range95.high),
			fmt.Sprintf("%.2f, %.2f", line.controls[without], line.controls[with]),
			goal, line.result(),
		})
	}
	values := harness.Table{
		Title:  "Initialization by three no-op initializers",
		Header: []string{"Measured", "Value", "Goal", "Result"},
	}
	for _, line := range r.values {
		values.Rows = append(values.Rows, []string{line.what, line.value, line.goal, line.result})
	}
	return []harness.Table{ratios, values}
}

// text returns the report for a terminal.
func (r *report) text() string { return harness.Text(r.facts, r.tables()) }

// markdown returns the report for the documentation.
func (r *report) markdown() string { return harness.Markdown(r.facts, r.tables()) }

// newDurationLine returns a valueLine whose goal is a duration.
func newDurationLine(what string, value time.Duration, notes string, goal time.Duration) valueLine {
	line := valueLine{what: what, value: harness.FormatDuration(value) + notes, goal: noGoal, result: noGoal}
	if goal > 0 {
		line.goal = "under " + formatGoal(goal)
		line.result = missed
		if value < goal {
			line.result = met
		}
	}
	return line
}

// formatGoal formats a duration in whole seconds or milliseconds.
func formatGoal(goal time.Duration) string {
	if goal%time.Second == 0 {
		return fmt.Sprintf("%d s", goal/time.Second)
	}
	return fmt.Sprintf("%d ms", goal/time.Millisecond)
}
