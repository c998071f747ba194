// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ReadSamples calls the function do for each sample of the given metrics in the output of /metrics.
func ReadSamples(
	metrics io.Reader, names []string, do func(name string, labels map[string]string, value float64),
) error {
	lines := bufio.NewScanner(metrics)
	// Help texts and bucket lists can be long.
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		end := strings.IndexAny(line, "{ ")
		if end < 0 || !slices.Contains(names, line[:end]) {
			continue
		}
		tail := "}" + line[end:]
		if line[end] == '{' {
			tail = line[end+1:]
		}
		labels, value, err := parseSample(tail)
		if err != nil {
			return fmt.Errorf("failed to parse %q: %w", line, err)
		}
		do(line[:end], labels, value)
	}
	return lines.Err()
}

// parseSample parses the labels and the value of a sample: `a="b",c="d"} 12`.
func parseSample(text string) (map[string]string, float64, error) {
	labels := map[string]string{}
	for !strings.HasPrefix(text, "}") {
		name, tail, found := strings.Cut(text, "=")
		if !found {
			return nil, 0, fmt.Errorf("a label has no value in %q", text)
		}
		quoted, err := strconv.QuotedPrefix(tail)
		if err != nil {
			return nil, 0, fmt.Errorf("the value of label %s is not quoted in %q", name, tail)
		}
		if labels[name], err = strconv.Unquote(quoted); err != nil {
			return nil, 0, fmt.Errorf("failed to parse the value of label %s: %w", name, err)
		}
		text = strings.TrimPrefix(tail[len(quoted):], ",")
	}
	fields := strings.Fields(text[1:])
	if len(fields) == 0 {
		return nil, 0, fmt.Errorf("there is no value in %q", text)
	}
	value, err := strconv.ParseFloat(fields[0], 64)
	return labels, value, err
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
