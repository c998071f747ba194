// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

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
