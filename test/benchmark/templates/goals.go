// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
)

// The goals, in milliseconds, MiB or as numbers.
const (
	goalOpenMedian     = 60
	goalOpenPercentile = 200
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
	if len(r.open) > 0 {
		add("One namespace: median", milliseconds(harness.Median(r.open)), goalOpenMedian, formatMilliseconds)
		add("One namespace: 99th percentile", milliseconds(harness.Percentile(r.open, 0.99)), goalOpenPercentile,
			formatMilliseconds)
		if fastest := o.fastestPeer(); fastest > 0 {
			add("One namespace: times the faster Kyverno", float64(harness.Median(r.open))/float64(fastest), 1, formatNumber)
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
		if len(one.open) > 0 && len(r.open) > 0 {
			add("Changed template: times slower new namespaces",
				float64(harness.Median(one.open))/float64(harness.Median(r.open)), goalSlowdown, formatNumber)
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
	if r.steady > 0 {
		add("Write requests while nothing changes", float64(r.writes), 0, formatNumber)
		add("Write requests after a restart", float64(r.restartWrites), 0, formatNumber)
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
		if r := o.results[name]; r != nil && len(r.open) > 0 {
			if took := harness.Median(r.open); fastest == 0 || took < fastest {
				fastest = took
			}
		}
	}
	return fastest
}

func milliseconds(duration time.Duration) float64 {
	return float64(duration) / float64(time.Millisecond)
}
