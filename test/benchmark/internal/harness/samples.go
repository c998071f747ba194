// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// ReadSamples calls the function do for each sample of the given counters and gauges in the output of /metrics.
func ReadSamples(
	metrics io.Reader, names []string, do func(name string, labels map[string]string, value float64),
) error {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(metrics)
	if err != nil {
		return fmt.Errorf("failed to parse metrics: %w", err)
	}
	for _, name := range names {
		for _, metric := range families[name].GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			// Only one of the types is set.
			value := metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + metric.GetUntyped().GetValue()
			do(name, labels, value)
		}
	}
	return nil
}

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

// Tracker waits until something has happened to each object of a set, such as its deletion, and
// records the times.
type Tracker struct {
	lock    sync.Mutex
	waiting map[string]bool
	times   map[string]time.Time
	last    time.Time
	done    chan struct{}
}

// NewTracker returns a tracker that waits for the objects with the given names.
func NewTracker(names []string) *Tracker {
	t := &Tracker{waiting: map[string]bool{}, times: map[string]time.Time{}, done: make(chan struct{})}
	for _, name := range names {
		t.waiting[name] = true
	}
	return t
}

// Record records the time for an object. Only the first time counts.
func (t *Tracker) Record(name string, now time.Time) {
	t.lock.Lock()
	defer t.lock.Unlock()
	if !t.waiting[name] {
		return
	}
	delete(t.waiting, name)
	t.times[name], t.last = now, now
	if len(t.waiting) == 0 {
		close(t.done)
	}
}

// Done returns a channel that is closed when a time is recorded for the last object.
func (t *Tracker) Done() <-chan struct{} { return t.done }

// Last returns the last recorded time.
func (t *Tracker) Last() time.Time {
	t.lock.Lock()
	defer t.lock.Unlock()
	return t.last
}

// Times returns the recorded times by name.
func (t *Tracker) Times() map[string]time.Time {
	t.lock.Lock()
	defer t.lock.Unlock()
	return maps.Clone(t.times)
}

// Remaining returns the number of objects without a recorded time.
func (t *Tracker) Remaining() int {
	t.lock.Lock()
	defer t.lock.Unlock()
	return len(t.waiting)
}
