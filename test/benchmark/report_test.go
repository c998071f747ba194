// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"
)

func TestResult(t *testing.T) {
	for name, test := range map[string]struct {
		ratio, goal float64
		want        string
	}{
		"below":                     {1.01, 1.05, met},
		"equal to the goal":         {1.05, 1.05, met},
		"rounded down to the goal":  {1.0549, 1.05, met},
		"rounded up above the goal": {1.0551, 1.05, missed},
		"no goal":                   {9, 0, noGoal},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (ratioLine{ratio: test.ratio, goal: test.goal}).result(); got != test.want {
				t.Errorf("The result for ratio %v and goal %v is %q, want %q", test.ratio, test.goal, got, test.want)
			}
		})
	}
}

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

func TestComputeRatio(t *testing.T) {
	for name, test := range map[string]struct {
		samples, reference []time.Duration
		want               float64
	}{
		"the same":            {[]time.Duration{10, 20, 30}, []time.Duration{30, 20, 10}, 1},
		"slower":              {[]time.Duration{30, 30}, []time.Duration{20, 20}, 1.5},
		"faster":              {[]time.Duration{5}, []time.Duration{10}, 0.5},
		"no samples":          {nil, []time.Duration{10}, math.NaN()},
		"no reference":        {[]time.Duration{10}, nil, math.NaN()},
		"a reference of zero": {[]time.Duration{10}, []time.Duration{0}, math.NaN()},
	} {
		t.Run(name, func(t *testing.T) {
			got := computeRatio(test.samples, test.reference)
			if math.IsNaN(got) != math.IsNaN(test.want) || math.Abs(got-test.want) > 1e-9 {
				t.Errorf("computeRatio(%v, %v) = %v, want %v", test.samples, test.reference, got, test.want)
			}
		})
	}
}

func TestComputeInterval(t *testing.T) {
	steady := [][]time.Duration{{100, 100}, {100, 100}, {100, 100}}
	double := [][]time.Duration{{200, 200}, {200, 200}, {200, 200}}
	if got := computeInterval(double, steady); got.low != 2 || got.high != 2 {
		t.Errorf("Without noise, the interval is %v, want exactly 2", got)
	}

	// If the rounds differ, the interval contains the ratio and is not empty.
	noisy := [][]time.Duration{{150, 160}, {190, 200}, {240, 250}, {180, 220}}
	reference := [][]time.Duration{{100, 100}, {100, 100}, {100, 100}, {100, 100}}
	ratio := computeRatio(slices.Concat(noisy...), slices.Concat(reference...))
	got := computeInterval(noisy, reference)
	if got.low >= ratio || got.high <= ratio {
		t.Errorf("The interval is %v, want an interval that contains %v", got, ratio)
	}
	if again := computeInterval(noisy, reference); again != got {
		t.Errorf("The same samples result in %v and then in %v", got, again)
	}

	if got := computeInterval(nil, reference); !math.IsNaN(got.low) || !math.IsNaN(got.high) {
		t.Errorf("The interval without samples is %v, want NaN", got)
	}
}
