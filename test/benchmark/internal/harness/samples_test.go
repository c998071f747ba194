// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"math"
	"slices"
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	for name, test := range map[string]struct {
		samples []float64
		share   float64
		want    float64
	}{
		"no samples":                     {nil, 0.5, 0},
		"one sample":                     {[]float64{7}, 0.95, 7},
		"median of three":                {[]float64{9, 1, 5}, 0.5, 5},
		"median of four":                 {[]float64{4, 1, 3, 2}, 0.5, 2.5},
		"the smallest":                   {[]float64{3, 1, 2}, 0, 1},
		"the largest":                    {[]float64{3, 1, 2}, 1, 3},
		"95th percentile of 0 to 100":    {seq(101), 0.95, 95},
		"95th percentile of two samples": {[]float64{0, 10}, 0.95, 9.5},
		"median with an outlier":         {[]float64{1, 2, 3, 4, 1e9}, 0.5, 3},
		"equal samples":                  {[]float64{2, 2, 2, 2}, 0.3, 2},
	} {
		t.Run(name, func(t *testing.T) {
			before := slices.Clone(test.samples)
			if got := Percentile(test.samples, test.share); math.Abs(got-test.want) > 1e-9 {
				t.Errorf("Percentile(%v, %v) = %v, want %v", test.samples, test.share, got, test.want)
			}
			if !slices.Equal(test.samples, before) {
				t.Errorf("The samples were changed from %v to %v", before, test.samples)
			}
		})
	}
}

func TestMedianOfDurations(t *testing.T) {
	if got := Median([]time.Duration{3 * time.Millisecond, time.Millisecond}); got != 2*time.Millisecond {
		t.Errorf("Median = %s, want 2ms", got)
	}
}

// seq returns the numbers from count-1 down to 0.
func seq(count int) []float64 {
	values := make([]float64, 0, count)
	for i := range count {
		values = append(values, float64(count-1-i))
	}
	return values
}

func TestTracker(t *testing.T) {
	d := NewTracker([]string{"a", "b"})
	start := time.Now()
	d.Record("a", start)
	d.Record("a", start)
	d.Record("another", start)
	select {
	case <-d.Done():
		t.Fatal("The tracker is done before b is deleted")
	default:
	}
	if d.Remaining() != 1 {
		t.Errorf("%d objects remain, want 1", d.Remaining())
	}
	d.Record("b", start.Add(time.Second))
	<-d.Done()
	if got := d.Last().Sub(start); got != time.Second {
		t.Errorf("The last object was deleted after %s, want 1s", got)
	}
}
