// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
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
	return []harness.Table{
		r.timeTable(), r.bareTable(), r.requestTable(), r.costTable(), r.podTable(), r.growthTable(), r.goalTable(),
	}
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
		Header: []string{"Case", "API servers", "Peer", "Ours", "Peer / ours", "Peer, by verb", "Ours, by verb"},
		Note: "Medians, as counted by the API server. They include the requests while idle, but not those of the " +
			"benchmark. The medians of the verbs need not add up to the total.",
	}
	for _, l := range r.measured() {
		row := []string{l.scenario.title, strconv.Itoa(l.servers)}
		for side := range l.samples {
			row = append(row, cell(l, side, func() string { return formatCount(l.medianRequests(side)) }))
		}
		row = append(row, formatRatio(l.requestsRatio()))
		for side := range l.samples {
			row = append(row, cell(l, side, func() string { return formatVerbs(l.medianByVerb(side)) }))
		}
		table.Rows = append(table.Rows, row)
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

func (r *report) podTable() harness.Table {
	table := harness.Table{
		Title:  "From the removal of the last Pod to the removal of the namespace",
		Header: []string{"Case", "API servers", "Peer, median", "Peer, worst", "Ours, median", "Ours, worst"},
	}
	for _, l := range r.measured() {
		if l.scenario.content.pods == 0 {
			continue
		}
		row := []string{l.scenario.title, strconv.Itoa(l.servers)}
		for side := range l.samples {
			times := collect(l.samples[side], func(s sample) time.Duration { return s.afterPods })
			row = append(row, cell(l, side, func() string { return formatTime(harness.Median(times)) }),
				cell(l, side, func() string { return formatTime(slices.Max(times)) }))
		}
		table.Rows = append(table.Rows, row)
	}
	return table
}

// growth is a pair of cases that differ only in one number.
type growth struct {
	what     string
	from, to string
	factor   float64
}

func growths() []growth {
	list := []growth{
		{"CRDs, 100 to 300, one empty namespace", emptyWith100CRDs, emptyWith300CRDs, 3},
		{"ConfigMaps, 1,000 to 10,000", oneThousandMaps, tenThousandMaps, 10},
		{"Empty namespaces, 100 to 500", many100, many500, 5},
		{"Namespaces with 20 objects, 100 to 500", many100Full, many500Full, 5},
		{"500 empty namespaces, with 0 to 10,000 other namespaces", many500, amongTenThousand, math.Inf(1)},
	}
	for _, name := range []string{many100, many500, many100Full, many500Full} {
		list = append(list, growth{"Other objects, 0 to 50,000, " + name, name, crowded + name, math.Inf(1)})
	}
	return list
}

func (r *report) growthTable() harness.Table {
	table := harness.Table{
		Title: "Growth",
		Header: []string{
			"What grows", "API servers", "Times as many", "Time of peer", "Time of ours", "Requests of peer",
			"Requests of ours",
		},
		Note: "Factors of the medians. Time includes the minimum wait of each side.",
	}
	for _, g := range growths() {
		for _, servers := range []int{1, 2} {
			from, to := r.find(g.from, servers), r.find(g.to, servers)
			if from == nil || to == nil {
				continue
			}
			size := "from none"
			if !math.IsInf(g.factor, 0) {
				size = strconv.FormatFloat(g.factor, 'f', -1, 64)
			}
			row := []string{g.what, strconv.Itoa(servers), size}
			for side := range from.samples {
				row = append(row, formatRatio(factor(from, to, side, func(l *line) float64 {
					return l.medianTime(side).Seconds()
				})))
			}
			for side := range from.samples {
				row = append(row, formatRatio(factor(from, to, side, func(l *line) float64 {
					return float64(l.medianRequests(side))
				})))
			}
			table.Rows = append(table.Rows, row)
		}
	}
	return table
}

func factor(from, to *line, side int, value func(*line) float64) float64 {
	if len(from.samples[side]) == 0 || len(to.samples[side]) == 0 || value(from) == 0 {
		return math.NaN()
	}
	return value(to) / value(from)
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
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// formatVerbs formats the numbers of requests, starting with the most frequent verb.
func formatVerbs(requests harness.Counts) string {
	verbs := slices.SortedFunc(maps.Keys(requests), func(a, b string) int {
		if requests[a] != requests[b] {
			return int(requests[b] - requests[a])
		}
		return strings.Compare(a, b)
	})
	parts := make([]string, 0, len(verbs))
	for _, verb := range verbs {
		parts = append(parts, verb+" "+formatCount(requests[verb]))
	}
	if len(parts) == 0 {
		return nothing
	}
	return strings.Join(parts, ", ")
}
