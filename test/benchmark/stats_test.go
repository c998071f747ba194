// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"slices"
	"testing"
	"time"
)

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
