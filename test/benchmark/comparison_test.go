// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestComputeOrderIsBalanced(t *testing.T) {
	places := map[step]map[int]int{}
	followsItself := map[step]int{}
	for round := range 4 {
		order := computeOrder(round)
		for place, step := range order {
			if places[step] == nil {
				places[step] = map[int]int{}
			}
			places[step][place]++
			if place > 0 && order[place-1].side == step.side {
				followsItself[step]++
			}
		}
	}
	if len(places) != 4 {
		t.Fatalf("The rounds contain %d different turns, want 4", len(places))
	}
	for step, counts := range places {
		for place := range 4 {
			if counts[place] != 1 {
				t.Errorf("Turn %v occurs %d times in position %d in four rounds, want once", step, counts[place], place)
			}
		}
		if followsItself[step] != 1 {
			t.Errorf("Turn %v follows a turn of the same server %d times, want once", step, followsItself[step])
		}
	}
}

func TestCompareOmitsTheWarmUp(t *testing.T) {
	const rounds = 3
	var sent [2]int
	count := func(side int) request {
		return func(context.Context) error { sent[side]++; return nil }
	}
	result, err := compare(t.Context(), rounds, [2]request{count(without), count(with)})
	if err != nil {
		t.Fatal(err)
	}
	for side := range sent {
		if want := (warmUpRounds + rounds) * perRound; sent[side] != want {
			t.Errorf("Side %d got %d requests, want %d", side, sent[side], want)
		}
		if got := len(result.all(side)); got != rounds*perRound {
			t.Errorf("Side %d has %d samples, want %d", side, got, rounds*perRound)
		}
		if got := len(result.rounds(side)); got != rounds {
			t.Errorf("Side %d has %d rounds, want %d", side, got, rounds)
		}
	}
}

func TestCompareStopsAtTheFirstError(t *testing.T) {
	refused := errors.New("refused")
	works := func(context.Context) error { return nil }
	fails := func(context.Context) error { return refused }
	if _, err := compare(t.Context(), 1, [2]request{works, fails}); !errors.Is(err, refused) {
		t.Errorf("The error is %v, want %v", err, refused)
	}
}

func TestComparisonRatioAndControls(t *testing.T) {
	c := &comparison{}
	c.samples[without] = [2][][]time.Duration{{{10, 10}}, {{10, 10}}}
	c.samples[with] = [2][][]time.Duration{{{10, 10}}, {{20, 20}}}
	if got := c.ratio(); got != 1.5 {
		t.Errorf("The ratio is %v, want 1.5", got)
	}
	if got := c.control(without); got != 1 {
		t.Errorf("The control ratio without nslifecycle is %v, want 1", got)
	}
	if got := c.control(with); got != 2 {
		t.Errorf("The control ratio with nslifecycle is %v, want 2", got)
	}
}
