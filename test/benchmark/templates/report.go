// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
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
	tables = append(tables, o.changeTable(), o.restoredTable(), o.earlyTable(), o.steadyTable())
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
	reference := o.bare(func(r *results) float64 { return float64(harness.Median(r.open)) })
	return harness.Table{
		Title: "One namespace at a time: from its creation until the four objects exist",
		Header: []string{
			"Controller", "Samples", "Objects exist: median", "99th percentile", "Creator can write as well: median",
			"99th percentile", "Times the bare client", "Quota is enforced as well: median", "99th percentile", "Missing",
		},
		Rows: o.rows(func(r *results) []string {
			if len(r.open)+len(r.enforced)+r.missing == 0 {
				return nil
			}
			return []string{
				fmt.Sprint(len(r.open)), median(r.complete), percentile(r.complete), median(r.open), percentile(r.open),
				ratio(float64(harness.Median(r.open)), reference), median(r.enforced), percentile(r.enforced),
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
			"Controller", "Complete", "Time", "Times the bare client", "Requests per namespace", "by verb",
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
				fmt.Sprintf("%.1f", one.perNamespace()), one.verbs(), harness.FormatDuration(one.serverCPU),
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
				ratio(one.seconds(), reference), median(one.open),
				ratio(float64(harness.Median(one.open)), float64(harness.Median(r.open))),
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

func (o *outcome) steadyTable() harness.Table {
	return harness.Table{
		Title:  "Write requests while nothing changes",
		Header: []string{"Controller", "Duration", "Requests", "After a restart"},
		Rows: o.rows(func(r *results) []string {
			if r.steady == 0 {
				return nil
			}
			return []string{r.steady.String(), fmt.Sprint(r.writes), fmt.Sprint(r.restartWrites)}
		}),
		Note: "Without Leases, access reviews and tokens. The last column is for the same duration after a restart.",
	}
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

func (c *crowd) perNamespace() float64 { return float64(c.requests.Total()) / float64(c.total) }

// verbs returns the requests per namespace by verb, the most frequent first.
func (c *crowd) verbs() string {
	var parts []string
	for _, verb := range slices.SortedFunc(maps.Keys(c.requests), func(a, b string) int {
		return cmp.Or(cmp.Compare(c.requests[b], c.requests[a]), cmp.Compare(a, b))
	}) {
		if each := float64(c.requests[verb]) / float64(c.total); each >= 0.05 {
			parts = append(parts, fmt.Sprintf("%s %.1f", verb, each))
		}
	}
	return strings.Join(parts, ", ")
}

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
