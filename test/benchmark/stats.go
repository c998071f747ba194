// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// resamples is how often the bootstrap draws; more does not change the second digit.
	resamples = 500
	// outside is the share of the bootstrap's ratios on either side of the interval.
	outside = 0.025
)

// number is what the statistics work on.
type number interface{ ~int64 | ~float64 }

// computePercentile returns the value below which a share of the samples lies,
// interpolated between the two nearest ones; 0 where there are no samples.
func computePercentile[T number](samples []T, share float64) T {
	if len(samples) == 0 {
		return 0
	}
	sorted := slices.Clone(samples)
	slices.Sort(sorted)
	position := share * float64(len(sorted)-1)
	below := int(math.Floor(position))
	above := min(below+1, len(sorted)-1)
	fraction := position - float64(below)
	return sorted[below] + T(fraction*float64(sorted[above]-sorted[below]))
}

func computeMedian[T number](samples []T) T { return computePercentile(samples, 0.5) }

// computeRatio returns the median of some samples as a multiple of the median of others;
// NaN where there is nothing to compare with.
func computeRatio(samples, reference []time.Duration) float64 {
	divisor := computeMedian(reference)
	if divisor == 0 || len(samples) == 0 {
		return math.NaN()
	}
	return float64(computeMedian(samples)) / float64(divisor)
}

// interval is where a ratio would lie most of the time if it were measured again.
type interval struct{ low, high float64 }

// computeInterval estimates the interval by drawing rounds with replacement. Rounds and
// not samples: neighbours in time are disturbed together. The same rounds are drawn for
// both sides. A fixed seed gives the same samples the same interval.
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
	return interval{low: computePercentile(ratios, outside), high: computePercentile(ratios, 1-outside)}
}
