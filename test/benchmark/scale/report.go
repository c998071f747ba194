// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"time"

	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
)

const nothing = "-"

// column is a column of a table, with a value for each step or sample.
type column[T any] struct {
	title  string
	value  func(T) float64
	format func(float64) string
}

func formatBytes(bytes float64) string { return fmt.Sprintf("%.1f MiB", bytes/(1<<20)) }

func formatNumber(value float64) string {
	if math.Abs(value) >= 1000 {
		return fmt.Sprintf("%.0f", value)
	}
	return fmt.Sprintf("%.3g", value)
}

func formatSeconds(seconds float64) string {
	return harness.FormatDuration(time.Duration(seconds * float64(time.Second)))
}

func (o *outcome) idleColumns() []column[*step] {
	watches := "Watches, with those of other clients"
	if o.hasOwnWatches {
		watches = "Watches"
	}
	return []column[*step]{
		{"Objects", func(s *step) float64 { return float64(s.objects) }, formatNumber},
		{"Resident memory", func(s *step) float64 { return s.idle.gauges[residentMemory] }, formatBytes},
		{"Peak so far", func(s *step) float64 { return float64(s.idle.peakMemory) }, formatBytes},
		{"Live heap", func(s *step) float64 { return s.idle.gauges[liveHeap] }, formatBytes},
		{"Goroutines", func(s *step) float64 { return s.idle.gauges[goroutines] }, formatNumber},
		{watches, func(s *step) float64 { return float64(s.idle.watches) }, formatNumber},
		{"Requests per second", func(s *step) float64 { return s.idle.rate.requests }, formatNumber},
		{"Processor time per second: API server", func(s *step) float64 { return s.idle.rate.server }, formatSeconds},
		{"Manager", func(s *step) float64 { return s.idle.rate.manager }, formatSeconds},
	}
}

func costColumns(of func(*step) *cost) []column[*step] {
	return []column[*step]{
		{"Median", func(s *step) float64 { return harness.Median(of(s).times).Seconds() }, formatSeconds},
		{"99th percentile", func(s *step) float64 { return harness.Percentile(of(s).times, 0.99).Seconds() }, formatSeconds},
		{"All", func(s *step) float64 { return of(s).took.Seconds() }, formatSeconds},
		{"Requests each", func(s *step) float64 { return of(s).requests }, formatNumber},
		{"Processor time each: API server", func(s *step) float64 { return of(s).server.Seconds() }, formatSeconds},
		{"Manager", func(s *step) float64 { return of(s).manager.Seconds() }, formatSeconds},
	}
}

func creationOf(s *step) *cost { return &s.creation }
func changeOf(s *step) *cost   { return &s.change }
func deletionOf(s *step) *cost { return &s.deletion }

func (o *outcome) tables() []harness.Table {
	sample := 0
	if len(o.steps) > 0 {
		sample = len(o.steps[0].creation.times)
	}
	return []harness.Table{
		o.stepTable("The manager while nothing changes", o.idleColumns()),
		o.stepTable(fmt.Sprintf("%d creations at once, until each namespace is initialized", sample),
			costColumns(creationOf)),
		o.stepTable("A change of the template, until all namespaces have it", costColumns(changeOf)),
		o.stepTable(fmt.Sprintf("%d deletions at once, until each namespace is removed", sample),
			append(costColumns(deletionOf),
				column[*step]{"Lists each", func(s *step) float64 { return s.deletion.lists }, formatNumber})),
		o.churnTable(),
	}
}

// stepTable returns a table with a row for each step, the exponents, and the increase with 1,000 more
// namespaces.
func (o *outcome) stepTable(title string, columns []column[*step]) harness.Table {
	table := harness.Table{Title: title, Header: []string{"Namespaces"}}
	exponents, increases := []string{"Exponent"}, []string{"Per 1,000 more"}
	for _, s := range o.steps {
		table.Rows = append(table.Rows, []string{fmt.Sprint(s.namespaces)})
	}
	for _, one := range columns {
		table.Header = append(table.Header, one.title)
		for i, s := range o.steps {
			table.Rows[i] = append(table.Rows[i], one.format(one.value(s)))
		}
		sizes, values := o.series(one.value)
		exponent, increase := nothing, nothing
		if fitted, ok := fitExponent(sizes, values); ok {
			exponent = fmt.Sprintf("%.2f", fitted)
		}
		if fitted, ok := fitSlope(sizes, values); ok {
			increase = one.format(1000 * fitted)
		}
		exponents, increases = append(exponents, exponent), append(increases, increase)
	}
	if len(o.steps) > 1 {
		table.Rows = append(table.Rows, exponents, increases)
	}
	return table
}

// series returns the numbers of namespaces and the values.
func (o *outcome) series(value func(*step) float64) (sizes, values []float64) {
	for _, s := range o.steps {
		sizes, values = append(sizes, float64(s.namespaces)), append(values, value(s))
	}
	return sizes, values
}

func churnColumns() []column[point] {
	return []column[point]{
		{"Resident memory", func(p point) float64 { return p.gauges[residentMemory] }, formatBytes},
		{"Live heap", func(p point) float64 { return p.gauges[liveHeap] }, formatBytes},
		{"Goroutines", func(p point) float64 { return p.gauges[goroutines] }, formatNumber},
		{"Watches of the API server", func(p point) float64 { return float64(p.watches) }, formatNumber},
		{"Requests per second", func(p point) float64 { return p.rate.requests }, formatNumber},
		{"Processor time per second: API server", func(p point) float64 { return p.rate.server }, formatSeconds},
		{"Manager", func(p point) float64 { return p.rate.manager }, formatSeconds},
		{"Initializing or terminating", func(p point) float64 { return float64(p.unfinished) }, formatNumber},
	}
}

// churnTable returns a table with a row for each value.
func (o *outcome) churnTable() harness.Table {
	table := harness.Table{Header: []string{"Measured", "First", "Last", "Maximum", "Slope per hour"}}
	if len(o.points) == 0 {
		return table
	}
	table.Title = fmt.Sprintf("Namespaces created and deleted for %s: %d samples",
		o.points[len(o.points)-1].after.Round(time.Second), len(o.points))
	for _, one := range churnColumns() {
		var hours, values []float64
		for _, p := range o.points {
			hours, values = append(hours, p.after.Hours()), append(values, one.value(p))
		}
		slope := nothing
		if fitted, ok := fitSlope(hours, values); ok {
			slope = one.format(fitted)
		}
		table.Rows = append(table.Rows, []string{
			one.title, one.format(values[0]), one.format(values[len(values)-1]), one.format(harness.Percentile(values, 1)),
			slope,
		})
	}
	return table
}

// fitSlope returns the slope of the least-squares fit, or false if the values of x do not differ.
func fitSlope(x, y []float64) (float64, bool) {
	count := float64(len(x))
	var sumX, sumY float64
	for i := range x {
		sumX, sumY = sumX+x[i], sumY+y[i]
	}
	var covariance, variance float64
	for i := range x {
		deviation := x[i] - sumX/count
		covariance += deviation * (y[i] - sumY/count)
		variance += deviation * deviation
	}
	return covariance / variance, variance > 0
}

// fitExponent returns the exponent of y as a power of x, or false if a value is not positive or the
// values of x do not differ.
func fitExponent(x, y []float64) (float64, bool) {
	logX, logY := make([]float64, len(x)), make([]float64, len(x))
	for i := range x {
		if x[i] <= 0 || y[i] <= 0 {
			return 0, false
		}
		logX[i], logY[i] = math.Log(x[i]), math.Log(y[i])
	}
	return fitSlope(logX, logY)
}
