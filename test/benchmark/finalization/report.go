// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
)

// report is the outcome of a run.
type report struct {
	// facts describes the machine and the versions.
	facts []string
	lines []*line
}

// find returns the line of a case, or nil.
func (r *report) find(name string, servers int) *line {
	for _, l := range r.lines {
		if l.scenario.name == name && l.servers == servers {
			return l
		}
	}
	return nil
}

// missed returns the goals that were measured and missed.
func (r *report) missed() []string {
	var names []string
	for _, g := range goals() {
		if _, result := g.evaluate(r); result == missed {
			names = append(names, g.what)
		}
	}
	return names
}

func (r *report) tables() []harness.Table {
	return []harness.Table{r.timeTable(), r.bareTable(), r.requestTable(), r.costTable(), r.goalTable()}
}

// measured returns the lines with samples.
func (r *report) measured() []*line {
	var result []*line
	for _, l := range r.lines {
		if len(l.samples[peer])+len(l.samples[ours]) > 0 {
			result = append(result, l)
		}
	}
	return result
}

func (r *report) timeTable() harness.Table {
	table := harness.Table{
		Title: "Time to removal",
		Header: []string{
			"Case", "API servers", "Peer, median", "Peer, worst", "Ours, median", "Ours, worst", "Peer / ours",
		},
		Note: "From before the first DELETE until the removal of the last namespace. The peer is kube-controller-manager.",
	}
	for _, l := range r.measured() {
		row := []string{l.scenario.title, strconv.Itoa(l.servers)}
		for side := range l.samples {
			row = append(row, cell(l, side, func() string { return formatTime(l.medianTime(side)) }),
				cell(l, side, func() string { return formatTime(slices.Max(l.times(side))) }))
		}
		table.Rows = append(table.Rows, append(row, formatRatio(l.timeRatio())))
	}
	return table
}

func (r *report) requestTable() harness.Table {
	table := harness.Table{
		Title:  "Requests",
		Header: []string{"Case", "API servers", "Peer", "Ours", "Peer / ours"},
		Note:   "Medians, as counted by the API server. They include requests while idle, but not those of the benchmark.",
	}
	for _, l := range r.measured() {
		row := []string{l.scenario.title, strconv.Itoa(l.servers)}
		for side := range l.samples {
			row = append(row, cell(l, side, func() string { return formatCount(l.medianRequests(side)) }))
		}
		table.Rows = append(table.Rows, append(row, formatRatio(l.requestsRatio())))
	}
	return table
}

func (r *report) costTable() harness.Table {
	table := harness.Table{
		Title: "Processor time and memory",
		Header: []string{
			"Case", "API servers", "API server with peer", "API server with ours", "Peer", "Ours",
			"Peak memory of peer", "Peak memory of ours",
		},
		Note: "Medians of processor time, and the peak memory of all rounds. The API server's time includes the " +
			"benchmark's own DELETEs and its watch. Memory is the peak resident memory since the start of the controller.",
	}
	if runtime.GOOS != "linux" {
		table.Note = "Not available on " + runtime.GOOS + "."
	}
	cpu := func(ok bool, values []time.Duration) string {
		if !ok {
			return nothing
		}
		return formatTime(harness.Median(values))
	}
	for _, l := range r.measured() {
		row := []string{l.scenario.title, strconv.Itoa(l.servers)}
		for side := range l.samples {
			row = append(row, cell(l, side, func() string {
				return cpu(l.samples[side][0].isCPUKnown,
					collect(l.samples[side], func(s sample) time.Duration { return s.serverCPU }))
			}))
		}
		for side := range l.samples {
			row = append(row, cell(l, side, func() string {
				return cpu(l.samples[side][0].isCPUKnown,
					collect(l.samples[side], func(s sample) time.Duration { return s.controllerCPU }))
			}))
		}
		for side := range l.samples {
			row = append(row, cell(l, side, func() string {
				if !l.samples[side][0].isMemoryKnown {
					return nothing
				}
				return harness.FormatMemory(slices.Max(collect(l.samples[side], func(s sample) int64 { return s.peakMemory })))
			}))
		}
		table.Rows = append(table.Rows, row)
	}
	return table
}

func (r *report) goalTable() harness.Table {
	table := harness.Table{Title: "Goals", Header: []string{"Measured", "Value", "Goal", "Result"}}
	for _, g := range goals() {
		value, result := g.evaluate(r)
		table.Rows = append(table.Rows, []string{g.what, g.format(value), g.formatLimit(), result})
	}
	return table
}

// nothing is the text for a missing value.
const nothing = "-"

// cell formats a value of a side, or returns a dash if the side was not measured.
func cell(l *line, side int, format func() string) string {
	if len(l.samples[side]) == 0 {
		return nothing
	}
	return format()
}

// formatTime formats a duration in seconds, with two decimal places below 100 s and one otherwise.
func formatTime(duration time.Duration) string {
	if duration >= 99995*time.Millisecond {
		return fmt.Sprintf("%.1f s", duration.Seconds())
	}
	return fmt.Sprintf("%.2f s", duration.Seconds())
}

func formatRatio(ratio float64) string {
	if math.IsNaN(ratio) || math.IsInf(ratio, 0) {
		return nothing
	}
	return fmt.Sprintf("%.1f", ratio)
}

// formatCount formats a number with thousands separators.
func formatCount(count int64) string {
	digits := strconv.FormatInt(count, 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
