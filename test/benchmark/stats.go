// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
)

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
