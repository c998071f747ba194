// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"
)

func TestSlope(t *testing.T) {
	const ms = time.Millisecond
	for name, test := range map[string]struct {
		medians map[int]time.Duration
		want    time.Duration
	}{
		"a line":     {map[int]time.Duration{1: 15 * ms, 2: 20 * ms, 4: 30 * ms, 8: 50 * ms}, 5 * ms},
		"flat":       {map[int]time.Duration{1: 15 * ms, 8: 15 * ms}, 0},
		"scattered":  {map[int]time.Duration{1: 10 * ms, 2: 20 * ms, 3: 24 * ms}, 7 * ms},
		"one length": {map[int]time.Duration{4: 15 * ms}, 0},
	} {
		if got := slope(test.medians); (got - test.want).Abs() > time.Microsecond {
			t.Errorf("%s: the slope is %s, want %s", name, got, test.want)
		}
	}
}

func TestEvaluate(t *testing.T) {
	for name, test := range map[string]struct {
		way    way
		took   time.Duration
		result string
	}{
		"under the goal":    {way{withLibrary, true}, goalEach - 1, met},
		"equal to the goal": {way{withLibrary, true}, goalEach, missed},
		"no goal":           {way{withClientGo, true}, goalEach, noGoal},
	} {
		if _, result := evaluate(test.way, test.took, goalEach); result != test.result {
			t.Errorf("%s: the result is %s, want %s", name, result, test.result)
		}
	}
}
