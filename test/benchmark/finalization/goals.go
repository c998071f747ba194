// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
)

// Results of a goal.
const (
	met         = "met"
	missed      = "missed"
	notMeasured = "not measured"
)

// peerDelay is the time that kube-controller-manager waits before it finalizes a namespace.
const peerDelay = 5 * time.Second

// gracePeriod returns the minimum time that nslifecycle waits with the given number of API servers.
func gracePeriod(servers int) time.Duration {
	if servers == 1 {
		return time.Second
	}
	return 5 * time.Second
}

// goal is a goal for one case, or for its difference from another one.
type goal struct {
	what     string
	scenario string
	servers  int
	// value returns the measured value, or NaN if it was not measured. If there is a reference, the value of that case
	// is subtracted.
	value     func(*line) float64
	reference string
	// limit is the minimum of the value, or its maximum if isMost is true.
	limit  float64
	isMost bool
	unit   string
}

func goals() []goal {
	list := []goal{
		{what: "100 empty namespaces, 100 CRDs: times faster", scenario: many100, servers: 1,
			value: (*line).timeRatio, limit: 20},
		{what: "100 empty namespaces, 100 CRDs: times fewer requests", scenario: many100, servers: 1,
			value: (*line).requestsRatio, limit: 25},
		{what: "500 empty namespaces, 100 CRDs: times the bare client", scenario: many500, servers: 1,
			value: (*line).bareRatio, limit: 1.3, isMost: true},
		{what: "Empty, 100 CRDs: times faster", scenario: emptyWith100CRDs, servers: 1,
			value: (*line).timeRatio, limit: 4},
		{what: "Empty, 100 CRDs, two API servers: time above the grace period", scenario: emptyWith100CRDs, servers: 2,
			value: (*line).aboveGracePeriod, limit: 0.3, isMost: true, unit: " s"},
	}
	for _, servers := range []int{1, 2} {
		suffix := ""
		if servers == 2 {
			suffix = ", two API servers"
		}
		list = append(list,
			goal{what: "10,000 ConfigMaps" + suffix + ": times faster, without grace period", scenario: tenThousandMaps,
				servers: servers, value: (*line).ratioWithoutWaiting, limit: 2},
			goal{what: "20 Pods" + suffix + ": time after the last Pod, at worst", scenario: twentyPods,
				servers: servers, value: (*line).worstAfterPods, limit: 1, isMost: true, unit: " s"})
	}
	for _, other := range []struct{ where, scenario string }{
		{"behind stuck ones", behindStuck},
		{"beside 10,000 Events", besideEvents},
		{"beside a hanging aggregated API", besideHangingAPI},
		{"with slow discovery", slowDiscovery},
	} {
		list = append(list, goal{what: "Another namespace " + other.where + ": later than alone", scenario: other.scenario,
			servers: 1, value: (*line).ownTime, reference: emptyAlone, limit: 1, isMost: true, unit: " s"})
	}
	return append(list, goal{what: "500 of 10,500 namespaces: peak memory", scenario: amongTenThousand, servers: 1,
		value: (*line).worstMemory, limit: 100, isMost: true, unit: " MiB"})
}

// evaluate returns the value and the result of a goal. NaN means that the value was not measured.
func (g goal) evaluate(r *report) (value float64, result string) {
	measure := func(scenario string) float64 {
		if l := r.find(scenario, g.servers); l != nil {
			return g.value(l)
		}
		return math.NaN()
	}
	value = measure(g.scenario)
	if g.reference != "" {
		value -= measure(g.reference)
	}
	switch {
	case math.IsNaN(value):
		return value, notMeasured
	case g.isMost && value <= g.limit, !g.isMost && value >= g.limit:
		return value, met
	}
	return value, missed
}

func (g goal) format(value float64) string {
	switch {
	case math.IsNaN(value):
		return "-"
	case math.IsInf(value, 1):
		return "∞"
	}
	return fmt.Sprintf("%.2f%s", value, g.unit)
}

func (g goal) formatLimit() string {
	limit := strings.TrimSuffix(fmt.Sprintf("%.1f", g.limit), ".0") + g.unit
	if g.isMost {
		return "at most " + limit
	}
	return "at least " + limit
}

// line is one case with one number of API servers.
type line struct {
	scenario scenario
	servers  int
	samples  [2][]sample
	// bare contains the samples of the bare client.
	bare []sample
}

// collect returns one value for each sample.
func collect[T any](samples []sample, what func(sample) T) []T {
	values := make([]T, 0, len(samples))
	for _, measured := range samples {
		values = append(values, what(measured))
	}
	return values
}

func (l *line) times(side int) []time.Duration {
	return collect(l.samples[side], func(s sample) time.Duration { return s.removed })
}

func (l *line) medianTime(side int) time.Duration { return harness.Median(l.times(side)) }

func (l *line) medianRequests(side int) int64 {
	return harness.Median(collect(l.samples[side], func(s sample) int64 { return s.requests }))
}

// isComplete reports whether both sides were measured.
func (l *line) isComplete() bool { return len(l.samples[peer]) > 0 && len(l.samples[ours]) > 0 }

func (l *line) timeRatio() float64 {
	if !l.isComplete() {
		return math.NaN()
	}
	return l.medianTime(peer).Seconds() / l.medianTime(ours).Seconds()
}

func (l *line) requestsRatio() float64 {
	if !l.isComplete() || l.medianRequests(ours) == 0 {
		return math.NaN()
	}
	return float64(l.medianRequests(peer)) / float64(l.medianRequests(ours))
}

// ownTime returns nslifecycle's median time, in seconds.
func (l *line) ownTime() float64 {
	if len(l.samples[ours]) == 0 {
		return math.NaN()
	}
	return l.medianTime(ours).Seconds()
}

// aboveGracePeriod returns nslifecycle's median time minus the grace period, in seconds.
func (l *line) aboveGracePeriod() float64 { return l.ownTime() - gracePeriod(l.servers).Seconds() }

// ratioWithoutWaiting returns the ratio of the times minus the minimum wait of each side. If
// nslifecycle takes no longer than the grace period, the ratio is infinite.
func (l *line) ratioWithoutWaiting() float64 {
	if !l.isComplete() {
		return math.NaN()
	}
	own := l.aboveGracePeriod()
	if own <= 0 {
		return math.Inf(1)
	}
	return (l.medianTime(peer) - peerDelay).Seconds() / own
}

func (l *line) worstAfterPods() float64 {
	if len(l.samples[ours]) == 0 {
		return math.NaN()
	}
	return slices.Max(collect(l.samples[ours], func(s sample) time.Duration { return s.afterPods })).Seconds()
}

// worstMemory returns nslifecycle's peak memory, in MiB.
func (l *line) worstMemory() float64 {
	if len(l.samples[ours]) == 0 || !l.samples[ours][0].isMemoryKnown {
		return math.NaN()
	}
	return float64(slices.Max(collect(l.samples[ours], func(s sample) int64 { return s.peakMemory }))) / (1 << 20)
}
