// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"math"
	"slices"
)

// Number is the type of the samples.
type Number interface{ ~int64 | ~float64 }

// Percentile returns a percentile of the samples, interpolated between the two nearest samples, or
// 0 if there are no samples. The share is between 0 and 1.
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

// Median returns the median of the samples.
func Median[T Number](samples []T) T { return Percentile(samples, 0.5) }
