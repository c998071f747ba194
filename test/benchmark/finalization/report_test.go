// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"testing"
	"time"

	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
)

// makeLine returns a line for the named scenario with the given samples.
func makeLine(name string, servers int, peers, own []sample) *line {
	for _, s := range scenarios() {
		if s.name == name {
			return &line{scenario: s, servers: servers, samples: [2][]sample{peer: peers, ours: own}}
		}
	}
	return nil
}

func makeSample(removed time.Duration, lists int64) sample {
	return sample{removed: removed, requests: harness.Counts{"LIST": lists}, isMemoryKnown: true, peakMemory: 50 << 20}
}

func findGoal(t *testing.T, what string) goal {
	t.Helper()
	for _, g := range goals() {
		if g.what == what {
			return g
		}
	}
	t.Fatalf("The goal %q does not exist", what)
	return goal{}
}

func TestGoals(t *testing.T) {
	second := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	manyLine := func(peers, own float64, requests int64) *line {
		return makeLine(many100, 1, []sample{makeSample(second(peers), 25_000)}, []sample{makeSample(second(own), requests)})
	}
	maps := func(servers int, peers, own float64) *line {
		return makeLine(tenThousandMaps, servers, []sample{makeSample(second(peers), 1)}, []sample{makeSample(second(own), 1)})
	}
	const bareGoal = "500 empty namespaces, 100 CRDs: times the bare client"
	bareLine := func(bare float64, own ...float64) *line {
		l := makeLine(many500, 1, nil, nil)
		for _, s := range own {
			l.samples[ours] = append(l.samples[ours], makeSample(second(s), 1))
			l.bare = append(l.bare, makeSample(second(bare), 1))
		}
		return l
	}
	for name, test := range map[string]struct {
		what   string
		line   *line
		value  float64
		result string
	}{
		"not measured":         {"100 empty namespaces, 100 CRDs: times faster", nil, math.NaN(), notMeasured},
		"only one side":        {"100 empty namespaces, 100 CRDs: times faster", makeLine(many100, 1, nil, []sample{makeSample(1, 1)}), math.NaN(), notMeasured},
		"fast enough":          {"100 empty namespaces, 100 CRDs: times faster", manyLine(60, 3, 1), 20, met},
		"not fast enough":      {"100 empty namespaces, 100 CRDs: times faster", manyLine(60, 4, 1), 15, missed},
		"few requests":         {"100 empty namespaces, 100 CRDs: times fewer requests", manyLine(1, 1, 1000), 25, met},
		"many requests":        {"100 empty namespaces, 100 CRDs: times fewer requests", manyLine(1, 1, 2500), 10, missed},
		"without grace period": {"10,000 ConfigMaps: times faster, without grace period", maps(1, 29, 9), 3, met},
		"without grace period, two servers": {"10,000 ConfigMaps, two API servers: times faster, without grace period",
			maps(2, 29, 21), 1.5, missed},
		"all times are within the grace period": {"10,000 ConfigMaps, two API servers: times faster, without grace period",
			maps(2, 29, 5), math.Inf(1), met},
		"near the bare client":     {bareGoal, bareLine(2, 2.5), 1.25, met},
		"far from the bare client": {bareGoal, bareLine(2, 3), 1.5, missed},
		"without a bare client":    {bareGoal, bareLine(2), math.NaN(), notMeasured},
		"after the grace period": {"Empty, 100 CRDs, two API servers: time above the grace period",
			makeLine(emptyWith100CRDs, 2, nil, []sample{makeSample(second(5.25), 1)}), 0.25, met},
		"long after the grace period": {"Empty, 100 CRDs, two API servers: time above the grace period",
			makeLine(emptyWith100CRDs, 2, nil, []sample{makeSample(second(5.5), 1)}), 0.5, missed},
		"worst time after Pods": {"20 Pods: time after the last Pod, at worst",
			makeLine(twentyPods, 1, nil, []sample{{afterPods: second(0.5)}, {afterPods: second(1.5)}}), 1.5, missed},
		"memory": {"500 of 10,500 namespaces: peak memory",
			makeLine(amongTenThousand, 1, nil, []sample{makeSample(1, 1)}), 50, met},
		"unknown memory": {"500 of 10,500 namespaces: peak memory",
			makeLine(amongTenThousand, 1, nil, []sample{{}}), math.NaN(), notMeasured},
	} {
		t.Run(name, func(t *testing.T) {
			measured := &report{}
			if test.line != nil {
				measured.lines = append(measured.lines, test.line)
			}
			value, result := findGoal(t, test.what).evaluate(measured)
			isEqual := value == test.value || math.Abs(value-test.value) < 1e-9 || math.IsNaN(value) && math.IsNaN(test.value)
			if !isEqual || result != test.result {
				t.Errorf("The goal has value %v, result %s; want %v, %s", value, result, test.value, test.result)
			}
		})
	}
}

// Goals with a reference compare the medians of nslifecycle in two cases.
func TestGoalsWithAReference(t *testing.T) {
	lineOf := func(name string, times ...time.Duration) *line {
		l := makeLine(name, 1, []sample{makeSample(time.Hour, 1)}, nil)
		for _, removed := range times {
			l.samples[ours] = append(l.samples[ours], makeSample(removed, 1))
		}
		return l
	}
	alone := lineOf(emptyAlone, time.Second, 1100*time.Millisecond, time.Hour)
	for name, test := range map[string]struct {
		where  string
		lines  []*line
		value  float64
		result string
	}{
		"hardly later":            {"behind stuck ones", []*line{alone, lineOf(behindStuck, 1600*time.Millisecond)}, 0.5, met},
		"earlier":                 {"with slow discovery", []*line{alone, lineOf(slowDiscovery, time.Second)}, -0.1, met},
		"later":                   {"beside 10,000 Events", []*line{alone, lineOf(besideEvents, 2600*time.Millisecond)}, 1.5, missed},
		"alone was not measured":  {"beside a hanging aggregated API", []*line{lineOf(besideHangingAPI, 1)}, math.NaN(), notMeasured},
		"only alone was measured": {"beside a hanging aggregated API", []*line{alone}, math.NaN(), notMeasured},
	} {
		t.Run(name, func(t *testing.T) {
			g := findGoal(t, "Another namespace "+test.where+": later than alone")
			value, result := g.evaluate(&report{lines: test.lines})
			isEqual := math.Abs(value-test.value) < 1e-9 || math.IsNaN(value) && math.IsNaN(test.value)
			if !isEqual || result != test.result {
				t.Errorf("The goal has value %v, result %s; want %v, %s", value, result, test.value, test.result)
			}
		})
	}
}

func TestLineMedians(t *testing.T) {
	l := makeLine("empty", 1,
		[]sample{{requests: harness.Counts{"LIST": 10, "GET": 5}}, {requests: harness.Counts{"LIST": 30}}, {requests: harness.Counts{"LIST": 20, "GET": 1}}}, nil)
	if got := l.medianRequests(peer); got != 21 {
		t.Errorf("The median is %d, want 21", got)
	}
	if got := formatVerbs(l.medianByVerb(peer)); got != "LIST 20, GET 1" {
		t.Errorf("The verbs are %q", got)
	}
}
