// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "math"

// fitSlope returns the slope of the least-squares fit, or false if the values of x do not differ.
func fitSlope(x, y []float64) (float64, bool) {
	count := float64(len(x))
	var sumX, sumY float64
	for i := range x {
		sumX, sumY = sumX+x[i], sumY+y[i]
	}
	var covariance, variance float64
	for i := range x {
		deviation := x[i] - sumX/count
		covariance += deviation * (y[i] - sumY/count)
		variance += deviation * deviation
	}
	return covariance / variance, variance > 0
}

// fitExponent returns the exponent of y as a power of x, or false if a value is not positive or the
// values of x do not differ.
func fitExponent(x, y []float64) (float64, bool) {
	logX, logY := make([]float64, len(x)), make([]float64, len(x))
	for i := range x {
		if x[i] <= 0 || y[i] <= 0 {
			return 0, false
		}
		logX[i], logY[i] = math.Log(x[i]), math.Log(y[i])
	}
	return fitSlope(logX, logY)
}
