// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
)

// none is the content of a cell without a value.
const none = "-"

// tables returns the report and the missed goals.
func (o *outcome) tables() ([]harness.Table, []string) {
	tables := []harness.Table{o.singleTable()}
	for _, size := range o.sizes {
		tables = append(tables, o.crowdTable(size))
	}
	tables = append(tables, o.changeTable(), o.restoredTable(), o.earlyTable())
	goals, missed := goalTable(o.goals())
	return append(tables, goals), missed
}

// rows returns a row for each contender for which cells returns cells.
func (o *outcome) rows(cells func(*results) []string) [][]string {
	var rows [][]string
	for _, name := range o.selected {
		if found := cells(o.results[name]); found != nil {
			rows = append(rows, append([]string{contenderTitles[name]}, found...))
		}
	}
	return rows
}

func (o *outcome) singleTable() harness.Table {
	reference := o.bare(func(r *results) float64 { return float64(harness.Median(r.initialized)) })
	return harness.Table{
		Title: "One namespace at a time: from its creation until the four objects exist",
		Header: []string{
			"Controller", "Samples", "Objects exist: median", "99th percentile", "Creator can write as well: median",
			"99th percentile", "Times the bare client", "Quota is enforced as well: median", "99th percentile", "Missing",
		},
		Rows: o.rows(func(r *results) []string {
			if len(r.initialized)+len(r.enforced)+r.missing == 0 {
				return nil
			}
			return []string{
				fmt.Sprint(len(r.initialized)), median(r.complete), percentile(r.complete),
				median(r.initialized), percentile(r.initialized),
				ratio(float64(harness.Median(r.initialized)), reference), median(r.enforced), percentile(r.enforced),
				fmt.Sprint(r.missing),
			}
		}),
		Note: "Without kube-controller-manager, except for the columns about quotas.",
	}
}

func (o *outcome) crowdTable(size int) harness.Table {
	took := o.bare(func(r *results) float64 { return r.crowd(size).seconds() })
	cpu := o.bare(func(r *results) float64 { return float64(r.crowd(size).cpu()) })
	return harness.Table{
		Title: fmt.Sprintf("%d namespaces at once", size),
		Header: []string{
			"Controller", "Complete", "Time", "Times the bare client", "Requests per namespace",
			"Processor time: API server", "controller", "both, times the bare client", "Peak memory of the controller",
			"Restarts",
		},
		Rows: o.rows(func(r *results) []string {
			one := r.crowd(size)
			if one == nil {
				return nil
			}
			return []string{
				fmt.Sprint(one.complete), harness.FormatDuration(one.took), ratio(one.seconds(), took),
				fmt.Sprintf("%.1f", one.perNamespace()), harness.FormatDuration(one.serverCPU),
				harness.FormatDuration(one.controllerCPU), ratio(float64(one.cpu()), cpu), harness.FormatMemory(one.memory),
				fmt.Sprint(one.restarts),
			}
		}),
		Note: "The round with the median time. The time is that of the last complete namespace.",
	}
}

func (o *outcome) changeTable() harness.Table {
	reference := o.bare(func(r *results) float64 { return r.change().seconds() })
	return harness.Table{
		Title: "A changed template",
		Header: []string{
			"Controller", "Namespaces", "Updated", "Time", "Times the bare client", "New namespaces meanwhile: median",
			"Times those without a change",
		},
		Rows: o.rows(func(r *results) []string {
			one := r.change()
			if one == nil {
				return nil
			}
			return []string{
				fmt.Sprint(one.total), fmt.Sprint(one.updated), harness.FormatDuration(one.took),
				ratio(one.seconds(), reference), median(one.initialized),
				ratio(float64(harness.Median(one.initialized)), float64(harness.Median(r.initialized))),
			}
		}),
	}
}

func (o *outcome) restoredTable() harness.Table {
	return harness.Table{
		Title: "From the change of an object by another client until it is restored",
		Header: []string{
			"Controller", "Deleted: median", "99th percentile", "Modified: median", "99th percentile", "Not restored",
		},
		Rows: o.rows(func(r *results) []string {
			if len(r.deleted)+len(r.modified)+r.notRestored == 0 {
				return nil
			}
			return []string{
				median(r.deleted), percentile(r.deleted), median(r.modified), percentile(r.modified), fmt.Sprint(r.notRestored),
			}
		}),
	}
}

func (o *outcome) earlyTable() harness.Table {
	table := harness.Table{
		Title:  "Writes of a user that the API server admits before the quota and the NetworkPolicy exist, per namespace",
		Header: []string{"Controller"},
		Rows: o.rows(func(r *results) []string {
			var cells []string
			for _, writers := range writerCounts {
				if len(r.early[writers]) > 0 {
					cells = append(cells, fmt.Sprintf("%d to %d", slices.Min(r.early[writers]), slices.Max(r.early[writers])))
				}
			}
			return cells
		}),
	}
	for _, writers := range writerCounts {
		table.Header = append(table.Header, fmt.Sprintf("Writers: %d", writers))
	}
	return table
}

// bare returns a value of the bare client, or 0 if it was not measured.
func (o *outcome) bare(value func(*results) float64) float64 {
	if r := o.results[bareClient]; r != nil {
		return value(r)
	}
	return 0
}

// crowd returns the round with the median time, or nil.
func (r *results) crowd(size int) *crowd {
	rounds := slices.SortedFunc(slices.Values(r.crowds[size]), func(a, b crowd) int { return int(a.took - b.took) })
	if len(rounds) == 0 {
		return nil
	}
	return &rounds[len(rounds)/2]
}

// change returns the round with the median time, or nil.
func (r *results) change() *change {
	rounds := slices.SortedFunc(slices.Values(r.changes), func(a, b change) int { return int(a.took - b.took) })
	if len(rounds) == 0 {
		return nil
	}
	return &rounds[len(rounds)/2]
}

func (c *crowd) seconds() float64 {
	if c == nil {
		return 0
	}
	return c.took.Seconds()
}

func (c *crowd) cpu() time.Duration {
	if c == nil {
		return 0
	}
	return c.serverCPU + c.controllerCPU
}

func (c *crowd) perNamespace() float64 { return float64(c.requests) / float64(c.total) }

func (c *change) seconds() float64 {
	if c == nil {
		return 0
	}
	return c.took.Seconds()
}

func median(samples []time.Duration) string {
	if len(samples) == 0 {
		return none
	}
	return harness.FormatDuration(harness.Median(samples))
}

func percentile(samples []time.Duration) string {
	if len(samples) == 0 {
		return none
	}
	return harness.FormatDuration(harness.Percentile(samples, 0.99))
}

// ratio formats a ratio, or none if one of the values is missing.
func ratio(value, reference float64) string {
	if value == 0 || reference == 0 {
		return none
	}
	return fmt.Sprintf("%.2f", value/reference)
}

// goal is an upper limit of a measured value.
type goal struct {
	name         string
	value, limit float64
	format       func(float64) string
}

func formatNumber(value float64) string { return fmt.Sprintf("%.3g", value) }

func formatMilliseconds(value float64) string {
	return harness.FormatDuration(time.Duration(value * float64(time.Millisecond)))
}

// goalTable returns the table of the goals, and the names of the missed ones.
func goalTable(goals []goal) (harness.Table, []string) {
	table := harness.Table{Title: "Goals of nslifecycle", Header: []string{"Measured", "Value", "Goal", "Result"}}
	var missed []string
	for _, g := range goals {
		result := "met"
		if !(g.value <= g.limit) {
			result = "missed"
			missed = append(missed, g.name)
		}
		value := none
		if !math.IsNaN(g.value) && !math.IsInf(g.value, 0) {
			value = g.format(g.value)
		}
		table.Rows = append(table.Rows, []string{g.name, value, "at most " + g.format(g.limit), result})
	}
	return table, missed
}

// The goals, in milliseconds, MiB or as numbers.
const (
	goalInitializedMedian     = 60
	goalInitializedPercentile = 200
	// goalBare is the maximum ratio to the bare client, for time and processor time.
	goalBare           = 2
	goalRequests       = 9
	goalMemory         = 120
	goalRestoredMedian = 10
	goalRestoredWorst  = 50
	// goalSlowdown is the maximum ratio of the time of new namespaces during a change.
	goalSlowdown = 1.3
	// goalChanged is the maximum time per namespace for up to fewChanged namespaces, and
	// goalManyChanged is that for more.
	goalChanged     = 15
	goalManyChanged = 20
	fewChanged      = 200
)

// goals returns the goals for what was measured.
func (o *outcome) goals() []goal {
	r := o.results[ours]
	if r == nil {
		return nil
	}
	var goals []goal
	add := func(name string, value, limit float64, format func(float64) string) {
		goals = append(goals, goal{name, value, limit, format})
	}
	if len(r.initialized) > 0 {
		add("One namespace: median", milliseconds(harness.Median(r.initialized)), goalInitializedMedian, formatMilliseconds)
		add("One namespace: 99th percentile", milliseconds(harness.Percentile(r.initialized, 0.99)),
			goalInitializedPercentile, formatMilliseconds)
		if fastest := o.fastestPeer(); fastest > 0 {
			add("One namespace: times the faster Kyverno",
				float64(harness.Median(r.initialized))/float64(fastest), 1, formatNumber)
		}
	}
	for _, size := range o.sizes {
		if one := r.crowd(size); one != nil {
			goals = append(goals, o.crowdGoals(size, one)...)
		}
	}
	if one := r.change(); one != nil {
		limit := float64(goalChanged)
		if one.total > fewChanged {
			limit = goalManyChanged
		}
		add("Changed template: not updated", float64(one.total-one.updated), 0, formatNumber)
		add("Changed template: time per namespace", milliseconds(one.took)/float64(one.total), limit, formatMilliseconds)
		if len(one.initialized) > 0 && len(r.initialized) > 0 {
			add("Changed template: times slower new namespaces",
				float64(harness.Median(one.initialized))/float64(harness.Median(r.initialized)), goalSlowdown, formatNumber)
		}
	}
	if len(r.deleted) > 0 {
		add("Deleted object: median", milliseconds(harness.Median(r.deleted)), goalRestoredMedian, formatMilliseconds)
		add("Deleted object: 99th percentile", milliseconds(harness.Percentile(r.deleted, 0.99)), goalRestoredWorst,
			formatMilliseconds)
	}
	if len(r.modified) > 0 {
		add("Modified object: median", milliseconds(harness.Median(r.modified)), goalRestoredMedian, formatMilliseconds)
		add("Modified object: 99th percentile", milliseconds(harness.Percentile(r.modified, 0.99)), goalRestoredWorst,
			formatMilliseconds)
	}
	for _, writers := range writerCounts {
		if len(r.early[writers]) > 0 {
			add(fmt.Sprintf("Early writes, writers: %d", writers), float64(slices.Max(r.early[writers])), 0, formatNumber)
		}
	}
	return goals
}

func (o *outcome) crowdGoals(size int, one *crowd) []goal {
	prefix := fmt.Sprintf("%d at once: ", size)
	goals := []goal{
		{prefix + "incomplete", float64(one.total - one.complete), 0, formatNumber},
		{prefix + "requests per namespace", one.perNamespace(), goalRequests, formatNumber},
		{prefix + "peak memory in MiB", float64(one.memory) / (1 << 20), goalMemory, formatNumber},
	}
	if reference := o.bare(func(r *results) float64 { return r.crowd(size).seconds() }); reference > 0 {
		goals = append(goals, goal{prefix + "time, times the bare client", one.seconds() / reference, goalBare, formatNumber})
	}
	if reference := o.bare(func(r *results) float64 { return float64(r.crowd(size).cpu()) }); reference > 0 {
		goals = append(goals, goal{
			prefix + "processor time, times the bare client", float64(one.cpu()) / reference, goalBare, formatNumber,
		})
	}
	return goals
}

// fastestPeer returns the smaller median of the two configurations of Kyverno, or 0.
func (o *outcome) fastestPeer() time.Duration {
	var fastest time.Duration
	for _, name := range []string{kyvernoPeer, raisedKyverno} {
		if r := o.results[name]; r != nil && len(r.initialized) > 0 {
			if took := harness.Median(r.initialized); fastest == 0 || took < fastest {
				fastest = took
			}
		}
	}
	return fastest
}

func milliseconds(duration time.Duration) float64 {
	return float64(duration) / float64(time.Millisecond)
}
