// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
)

// The goals: the time that each initializer adds, and the ratio of the medians of pkg/initializer and of
// the bare client.
const (
	goalEach = 15 * time.Millisecond
	goalBare = 2
)

const (
	// warmUp is the number of namespaces that are initialized before the measurement.
	warmUp = 5
	// chainAtOnce is the length of the chain for namespaces that are created concurrently.
	chainAtOnce = 3
)

// lengths are the measured lengths of chains.
var lengths = []int{1, 2, 4, 8}

var ways = []way{oneProcess, separateProcesses}

// samples contains the durations for one way and length.
type samples struct{ initialized, reported []time.Duration }

// outcome is the result of a run.
type outcome struct {
	facts  []string
	atOnce int
	chains map[way]map[int]*samples
	crowds map[way][]time.Duration
	// cpu is the processor time of the initializers for all namespaces that are created
	// concurrently.
	cpu map[way][]time.Duration
	// bare contains the durations with the bare client.
	bare []time.Duration
}

func namesOf(length int) []string {
	names := make([]string, length)
	for i := range names {
		names[i] = fmt.Sprintf("number-%d.bench.example.com", i+1)
	}
	return names
}

func measure(ctx context.Context, opts options) (result *outcome, err error) {
	result = &outcome{
		facts: harness.DescribeMachine(), atOnce: opts.atOnce,
		chains: map[way]map[int]*samples{}, crowds: map[way][]time.Duration{}, cpu: map[way][]time.Duration{},
	}
	harness.Say("Starting a control plane and the manager")
	c, err := startCluster(ctx, opts.Fsync)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	result.facts = append(result.facts, opts.DescribeServer(c.Version))
	for round := range opts.rounds {
		for _, length := range lengths {
			harness.Say("Round %d of %d: a chain of %d", round+1, opts.rounds, length)
			if err := c.register(ctx, namesOf(length)); err != nil {
				return nil, err
			}
			for i := range ways {
				if err := result.measureChain(ctx, c, ways[(i+round)%len(ways)], length, opts.namespaces); err != nil {
					return nil, err
				}
			}
		}
		harness.Say("Round %d of %d: %d namespaces at once", round+1, opts.rounds, opts.atOnce)
		if err := c.register(ctx, namesOf(chainAtOnce)); err != nil {
			return nil, err
		}
		if err := result.measureBare(ctx, c, opts.clients); err != nil {
			return nil, err
		}
		for i := range ways {
			if err := result.measureCrowd(ctx, c, ways[(i+round)%len(ways)], opts.clients); err != nil {
				return nil, err
			}
		}
	}
	return result, nil
}

// with starts a chain and its observer, and calls do after the warm-up.
func (c *cluster) with(ctx context.Context, w way, length int, do func(*observer, chain) error) (err error) {
	serving, err := c.serve(ctx, w, namesOf(length))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, serving.stop()) }()
	o, err := c.observe(ctx)
	if err != nil {
		return err
	}
	defer o.stop()
	if _, err := o.oneByOne(ctx, warmUp); err != nil {
		return err
	}
	return do(o, serving)
}

func (r *outcome) measureChain(ctx context.Context, c *cluster, w way, length, count int) error {
	return c.with(ctx, w, length, func(o *observer, _ chain) error {
		namespaces, err := o.oneByOne(ctx, count)
		if err != nil {
			return err
		}
		if r.chains[w] == nil {
			r.chains[w] = map[int]*samples{}
		}
		if r.chains[w][length] == nil {
			r.chains[w][length] = &samples{}
		}
		taken := r.chains[w][length]
		for _, timing := range namespaces {
			taken.initialized = append(taken.initialized, timing.initialized.Sub(timing.requested))
			taken.reported = append(taken.reported, timing.reported.Sub(timing.requested))
		}
		return nil
	})
}

func (r *outcome) measureCrowd(ctx context.Context, c *cluster, w way, clients int) error {
	return c.with(ctx, w, chainAtOnce, func(o *observer, serving chain) error {
		before, err := serving.cpu()
		if err != nil {
			return err
		}
		took, err := o.atOnce(ctx, r.atOnce, clients)
		if err != nil {
			return err
		}
		after, err := serving.cpu()
		if err != nil {
			return err
		}
		r.crowds[w] = append(r.crowds[w], took)
		r.cpu[w] = append(r.cpu[w], after-before)
		return nil
	})
}

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
	return time.Duration((n*sumXY - sumX*sumY) / (n*sumXX - sumX*sumX))
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
		result := met
		if took >= goal {
			result = missed
			without = append(without, table.Title+": "+string(w))
		}
		table.Rows = append(table.Rows,
			append(append([]string{string(w)}, cells...), "under "+harness.FormatDuration(goal), result))
	}
	for _, w := range ways {
		initialized, reported := map[int]time.Duration{}, map[int]time.Duration{}
		var cells []string
		for _, length := range lengths {
			taken := r.chains[w][length]
			initialized[length], reported[length] = harness.Median(taken.initialized), harness.Median(taken.reported)
			cells = append(cells, harness.FormatDuration(initialized[length])+", "+harness.FormatDuration(reported[length]))
		}
		cells = append(cells, harness.FormatDuration(slope(initialized)), harness.FormatDuration(slope(reported)))
		add(&chains, w, max(slope(initialized), slope(reported)), goalEach, cells...)
		median := harness.Median(r.crowds[w])
		add(&crowds, w, median, goalBare*bare, harness.FormatDuration(median),
			harness.FormatDuration(slices.Max(r.crowds[w])), harness.FormatDuration(harness.Median(r.cpu[w])),
			fmt.Sprintf("%.2f", median.Seconds()/bare.Seconds()))
	}
	return []harness.Table{chains, crowds}, without
}
