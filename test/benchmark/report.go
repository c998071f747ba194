// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
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
	return []harness.Table{ratios}
}

const (
	// turn is the number of consecutive requests to one server.
	turn = 5
	// perRound is the number of requests to each server in one round: two turns.
	perRound = 2 * turn
	// warmUpRounds are not measured.
	warmUpRounds = 10
)

// The two sides of a comparison.
const (
	without = iota
	with
)

// request sends one request to one server.
type request func(ctx context.Context) error

// step is one turn in a round.
type step struct{ side, half int }

// computeOrder returns the turns of a round: A B B A or B A A B. In four rounds, each half of each
// side is in every position once. Therefore, neither side benefits from drift, or from a turn that
// directly follows another turn of the same side.
func computeOrder(round int) []step {
	first, second := without, with
	if round%2 == 1 {
		first, second = with, without
	}
	half := round / 2 % 2
	return []step{{first, half}, {second, half}, {second, 1 - half}, {first, 1 - half}}
}

// comparison holds the durations of the same requests to two servers.
type comparison struct {
	// samples contains the durations by side, half and round.
	samples [2][2][][]time.Duration
}

// compare sends requests to both sides in turns and measures their durations.
func compare(ctx context.Context, rounds int, requests [2]request) (*comparison, error) {
	result := &comparison{}
	for round := -warmUpRounds; round < rounds; round++ {
		for _, step := range computeOrder(max(round, -round)) {
			times, err := takeTurn(ctx, requests[step.side])
			if err != nil {
				return nil, err
			}
			if round >= 0 {
				half := &result.samples[step.side][step.half]
				*half = append(*half, times)
			}
		}
	}
	return result, nil
}

func takeTurn(ctx context.Context, send request) ([]time.Duration, error) {
	times := make([]time.Duration, 0, turn)
	for range turn {
		start := time.Now()
		if err := send(ctx); err != nil {
			return nil, fmt.Errorf("failed to send a measured request: %w", err)
		}
		times = append(times, time.Since(start))
	}
	return times, nil
}

// all returns every sample of a side.
func (c *comparison) all(side int) []time.Duration { return slices.Concat(c.rounds(side)...) }

// rounds returns the samples of both halves of a side, by round.
func (c *comparison) rounds(side int) [][]time.Duration {
	halves := c.samples[side]
	rounds := make([][]time.Duration, 0, len(halves[0]))
	for i := range halves[0] {
		rounds = append(rounds, slices.Concat(halves[0][i], halves[1][i]))
	}
	return rounds
}

// ratio returns the median with nslifecycle divided by the median without.
func (c *comparison) ratio() float64 { return computeRatio(c.all(with), c.all(without)) }

func (c *comparison) interval() interval { return computeInterval(c.rounds(with), c.rounds(without)) }

// control returns the ratio of the medians of the two halves of one side.
func (c *comparison) control(side int) float64 {
	return computeRatio(slices.Concat(c.samples[side][1]...), slices.Concat(c.samples[side][0]...))
}

const (
	// resamples is the number of bootstrap samples; more samples do not change the second digit.
	resamples = 500
	// outside is the fraction of the bootstrap ratios that lie below the interval. The same
	// fraction lies above it.
	outside = 0.025
)

// computeRatio returns the median of the samples as a multiple of the median of the reference. It
// returns NaN if there are no samples, or if the median of the reference is 0.
func computeRatio(samples, reference []time.Duration) float64 {
	divisor := harness.Median(reference)
	if divisor == 0 || len(samples) == 0 {
		return math.NaN()
	}
	return float64(harness.Median(samples)) / float64(divisor)
}

// interval is a bootstrap confidence interval of a ratio.
type interval struct{ low, high float64 }

// computeInterval estimates the interval by drawing rounds with replacement. It draws rounds
// instead of samples, because other load on the machine affects consecutive samples. It draws the
// same rounds for both servers. Because the seed is fixed, the same samples always result in the
// same interval.
func computeInterval(samples, reference [][]time.Duration) interval {
	rounds := min(len(samples), len(reference))
	if rounds == 0 {
		return interval{low: math.NaN(), high: math.NaN()}
	}
	random := rand.New(rand.NewPCG(1, 2))
	ratios := make([]float64, 0, resamples)
	for range resamples {
		var drawn, drawnReference []time.Duration
		for range rounds {
			round := random.IntN(rounds)
			drawn = append(drawn, samples[round]...)
			drawnReference = append(drawnReference, reference[round]...)
		}
		ratios = append(ratios, computeRatio(drawn, drawnReference))
	}
	return interval{low: harness.Percentile(ratios, outside), high: harness.Percentile(ratios, 1-outside)}
}
