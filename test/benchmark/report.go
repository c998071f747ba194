// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// What a line says of its goal.
const (
	met    = "met"
	missed = "missed"
	noGoal = "-"
)

// report is the outcome of a run.
type report struct {
	// facts describe what it ran on.
	facts []string
	// ratios compare with and without.
	ratios []ratioLine
	// values are measured on the server with nslifecycle alone.
	values []valueLine
}

// ratioLine is one comparison. A goal of 0 is none.
type ratioLine struct {
	what         string
	samples      int
	median, high [2]time.Duration
	ratio        float64
	range95      interval
	controls     [2]float64
	goal         float64
}

// valueLine is something else. Only its words are printed.
type valueLine struct {
	what, value, goal, verdict string
}

func newRatioLine(what string, c *comparison, goal float64) ratioLine {
	line := ratioLine{what: what, ratio: c.ratio(), range95: c.interval(), goal: goal}
	for side := range line.median {
		samples := c.all(side)
		line.samples = len(samples)
		line.median[side] = computeMedian(samples)
		line.high[side] = computePercentile(samples, 0.95)
		line.controls[side] = c.control(side)
	}
	return line
}

// verdict judges what a reader sees: a ratio that is printed as its goal has met it.
func (l ratioLine) verdict() string {
	switch {
	case l.goal == 0:
		return noGoal
	case math.Round(l.ratio*100) <= math.Round(l.goal*100):
		return met
	}
	return missed
}

// missed names the lines whose goal was missed.
func (r *report) missed() []string {
	var names []string
	for _, line := range r.ratios {
		if line.verdict() == missed {
			names = append(names, line.what)
		}
	}
	for _, line := range r.values {
		if line.verdict == missed {
			names = append(names, line.what)
		}
	}
	return names
}

// table is what both forms of output are made of.
type table struct {
	title  string
	header []string
	rows   [][]string
	note   string
}

func (r *report) tables() []table {
	ratios := table{
		title: "Requests, with nslifecycle against without",
		header: []string{
			"Request", "Samples each", "Median without", "Median with", "Difference", "95th percentile",
			"Ratio of medians (95 %)", "Same server twice", "Goal", "Result",
		},
		note: "Two figures in one column are without and with. Same server twice is a ratio as well, " +
			"of one half of the samples to the other: what it is away from 1 is noise.",
	}
	// Those with a goal first, and otherwise as they were measured.
	lines := slices.Clone(r.ratios)
	slices.SortStableFunc(lines, func(a, b ratioLine) int {
		return cmp.Compare(min(b.goal, 1), min(a.goal, 1))
	})
	for _, line := range lines {
		goal := noGoal
		if line.goal > 0 {
			goal = fmt.Sprintf("at most %.2f", line.goal)
		}
		ratios.rows = append(ratios.rows, []string{
			line.what, fmt.Sprint(line.samples),
			formatDuration(line.median[without]), formatDuration(line.median[with]),
			formatDuration(line.median[with] - line.median[without]),
			formatDuration(line.high[without]) + ", " + formatDuration(line.high[with]),
			fmt.Sprintf("%.2f (%.2f to %.2f)", line.ratio, line.range95.low, line.range95.high),
			fmt.Sprintf("%.2f, %.2f", line.controls[without], line.controls[with]),
			goal, line.verdict(),
		})
	}
	values := table{
		title:  "Initialization by three initializers that do nothing",
		header: []string{"Measured", "Value", "Goal", "Result"},
	}
	for _, line := range r.values {
		values.rows = append(values.rows, []string{line.what, line.value, line.goal, line.verdict})
	}
	return []table{ratios, values}
}

// text is the report for a terminal.
func (r *report) text() string {
	var out strings.Builder
	for _, fact := range r.facts {
		fmt.Fprintf(&out, "%s\n", fact)
	}
	for _, table := range r.tables() {
		if len(table.rows) == 0 {
			continue
		}
		fmt.Fprintf(&out, "\n%s\n\n", table.title)
		widths := table.widths()
		for _, row := range append([][]string{table.header}, table.rows...) {
			for i, cell := range row {
				if i == len(row)-1 {
					fmt.Fprintf(&out, "%s\n", cell)
					continue
				}
				fmt.Fprintf(&out, "%s%s", cell, strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		if table.note != "" {
			fmt.Fprintf(&out, "\n%s\n", table.note)
		}
	}
	return out.String()
}

// markdown is the report for the documentation.
func (r *report) markdown() string {
	var out strings.Builder
	for _, fact := range r.facts {
		fmt.Fprintf(&out, "- %s\n", fact)
	}
	for _, table := range r.tables() {
		if len(table.rows) == 0 {
			continue
		}
		fmt.Fprintf(&out, "\n**%s**\n\n| %s |\n|%s\n", table.title,
			strings.Join(table.header, " | "), strings.Repeat(" --- |", len(table.header)))
		for _, row := range table.rows {
			fmt.Fprintf(&out, "| %s |\n", strings.Join(row, " | "))
		}
		if table.note != "" {
			fmt.Fprintf(&out, "\n%s\n", table.note)
		}
	}
	return out.String()
}

func (t table) widths() []int {
	widths := make([]int, len(t.header))
	for _, row := range append([][]string{t.header}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

// formatDuration prints three significant digits, and hundredths of a millisecond at best.
func formatDuration(duration time.Duration) string {
	// Not "-0.00 ms".
	if duration <= -5*time.Microsecond {
		return "-" + formatDuration(-duration)
	}
	duration = max(duration, 0)
	switch {
	case duration < 9995*time.Microsecond:
		return fmt.Sprintf("%.2f ms", duration.Seconds()*1000)
	case duration < 99950*time.Microsecond:
		return fmt.Sprintf("%.1f ms", duration.Seconds()*1000)
	case duration < 999500*time.Microsecond:
		return fmt.Sprintf("%.0f ms", duration.Seconds()*1000)
	}
	return fmt.Sprintf("%.1f s", duration.Seconds())
}

// newDurationLine is a valueLine whose goal is a time.
func newDurationLine(what string, value time.Duration, notes string, goal time.Duration) valueLine {
	line := valueLine{what: what, value: formatDuration(value) + notes, goal: noGoal, verdict: noGoal}
	if goal > 0 {
		line.goal = "under " + formatGoal(goal)
		line.verdict = missed
		if value < goal {
			line.verdict = met
		}
	}
	return line
}

// formatGoal prints a round time as such.
func formatGoal(goal time.Duration) string {
	if goal%time.Second == 0 {
		return fmt.Sprintf("%d s", goal/time.Second)
	}
	return fmt.Sprintf("%d ms", goal/time.Millisecond)
}
