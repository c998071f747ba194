// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"math"
	"slices"
)

// Number is what the statistics work on.
type Number interface{ ~int64 | ~float64 }

// Percentile returns the value below which a share of the samples lies, interpolated
// between the two nearest ones; 0 where there are no samples.
func Percentile[T Number](samples []T, share float64) T {
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

// Median returns the middle of the samples.
func Median[T Number](samples []T) T { return Percentile(samples, 0.5) }
