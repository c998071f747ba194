// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
)

// limit contains the values of --kube-api-qps and --kube-api-burst.
type limit struct{ qps, burst int }

// defaultLimit is the manager's default: no client-side rate limit.
var defaultLimit = limit{qps: -1, burst: 100}

// limits returns the limits that --limits measures, the defaults of kube-controller-manager first.
func limits() []limit {
	return []limit{{qps: 20, burst: 30}, {qps: 50, burst: 100}, {qps: 200, burst: 400}, defaultLimit}
}

// limitCases are the default cases of --limits: many types, many namespaces, and many objects.
var limitCases = strings.Join([]string{emptyWith100CRDs, many100, oneThousandMaps}, ",")

func (l limit) args() []string {
	return []string{"--kube-api-qps=" + strconv.Itoa(l.qps), "--kube-api-burst=" + strconv.Itoa(l.burst)}
}

func (l limit) String() string {
	if l.qps < 0 {
		return "none"
	}
	return fmt.Sprintf("%d/s, burst %d", l.qps, l.burst)
}

// limitLine holds the measurements of one case with one limit.
type limitLine struct {
	scenario scenario
	limit    limit
	samples  []sample
}

// measureLimits measures nslifecycle with each limit, and the effect on another client.
func (b *benchmark) measureLimits(ctx context.Context) error {
	var err error
	if b.bystander, err = newBystander(ctx, b.cluster); err != nil {
		return err
	}
	if err := b.measureBaseline(ctx); err != nil {
		return err
	}
	for _, s := range computeOrder(b.selected) {
		if err := b.cluster.setCRDs(ctx, s.crds); err != nil {
			return err
		}
		lines := make([]*limitLine, 0, len(limits()))
		for _, l := range limits() {
			lines = append(lines, &limitLine{scenario: s, limit: l})
		}
		b.report.limitLines = append(b.report.limitLines, lines...)
		for round := range b.rounds {
			for _, line := range lines {
				harness.Say("%s, rate limit: %s, round %d of %d", s.title, line.limit, round+1, b.rounds)
				b.contenders.limit = line.limit
				measured, err := b.measureOnce(ctx, s, ours)
				if err != nil {
					return fmt.Errorf("%s, rate limit %s: %w", s.title, line.limit, err)
				}
				harness.Say("  %s", formatTime(measured.removed))
				line.samples = append(line.samples, measured)
			}
		}
	}
	return nil
}

// measureBaseline measures the duration of another client's requests while the manager is idle.
func (b *benchmark) measureBaseline(ctx context.Context) error {
	process, err := b.contenders.start(ctx, ours)
	if err != nil {
		return err
	}
	defer func() { _ = process.Stop() }()
	if _, err := b.cluster.calm(ctx); err != nil {
		return err
	}
	stop := b.bystander.start(ctx)
	err = harness.Sleep(ctx, b.idleFor)
	latencies, requestError := stop()
	b.report.baseline = latencies
	return errors.Join(err, requestError, process.Stop())
}

func (r *report) limitTable() harness.Table {
	table := harness.Table{
		Title: "Client-side rate limits",
		Header: []string{
			"Case", "Limit", "Time to removal, median", "Worst", "API server", "Manager",
			"Other client, median", "p99", "Its requests",
		},
		Note: "The manager with --kube-api-qps and --kube-api-burst. Processor time is the median of the rounds and " +
			"includes the other client's requests. During the deletion, the other client alternately reads and writes a " +
			"ConfigMap, with 10 ms between requests. Its figures include the requests of all rounds.",
	}
	idle := []string{"nothing is deleted", nothing, nothing, nothing, nothing, nothing}
	table.Rows = append(table.Rows, append(idle, describeLatencies(r.baseline)...))
	for _, l := range r.limitLines {
		if len(l.samples) == 0 {
			continue
		}
		var times, serverTimes, managerTimes, latencies []time.Duration
		for _, measured := range l.samples {
			times = append(times, measured.removed)
			serverTimes = append(serverTimes, measured.serverCPU)
			managerTimes = append(managerTimes, measured.controllerCPU)
			latencies = append(latencies, measured.latencies...)
		}
		row := []string{
			l.scenario.title, l.limit.String(), formatTime(harness.Median(times)), formatTime(harness.Percentile(times, 1)),
			formatTime(harness.Median(serverTimes)), formatTime(harness.Median(managerTimes)),
		}
		table.Rows = append(table.Rows, append(row, describeLatencies(latencies)...))
	}
	return table
}

// describeLatencies returns the columns about the other client.
func describeLatencies(latencies []time.Duration) []string {
	return []string{
		harness.FormatDuration(harness.Median(latencies)), harness.FormatDuration(harness.Percentile(latencies, 0.99)),
		formatCount(int64(len(latencies))),
	}
}
