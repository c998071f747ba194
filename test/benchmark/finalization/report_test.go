// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"reflect"
	"strings"
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
			value, result := findGoal(t, test.what).evaluate(test.line)
			isEqual := value == test.value || math.Abs(value-test.value) < 1e-9 || math.IsNaN(value) && math.IsNaN(test.value)
			if !isEqual || result != test.result {
				t.Errorf("The goal has value %v, result %s; want %v, %s", value, result, test.value, test.result)
			}
		})
	}
}

func TestGoalFormat(t *testing.T) {
	for want, got := range map[string]string{
		"at least 20":     goal{limit: 20}.formatLimit(),
		"at most 0.3 s":   goal{limit: 0.3, isMost: true, unit: " s"}.formatLimit(),
		"0.25 s":          goal{unit: " s"}.format(0.25),
		"-":               goal{}.format(math.NaN()),
		"∞":               goal{}.format(math.Inf(1)),
		"at most 100 MiB": goal{limit: 100, isMost: true, unit: " MiB"}.formatLimit(),
	} {
		if got != want {
			t.Errorf("Got %q, want %q", got, want)
		}
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

func testReport() *report {
	return &report{facts: []string{"a machine"}, lines: []*line{
		makeLine("empty", 1, []sample{makeSample(5200*time.Millisecond, 265)}, []sample{makeSample(1100*time.Millisecond, 70)}),
		makeLine(emptyWith100CRDs, 1, []sample{makeSample(5700*time.Millisecond, 500)}, []sample{makeSample(1900*time.Millisecond, 0)}),
		makeLine(emptyWith300CRDs, 1, []sample{makeSample(11400*time.Millisecond, 1500)}, nil),
		makeLine(twentyPods, 2, nil, []sample{makeSample(5300*time.Millisecond, 1_234_567)}),
		makeLine(many500, 2, nil, nil),
	}}
}

func TestReport(t *testing.T) {
	r := testReport()
	r.lines[0].bare = []sample{{removed: 880 * time.Millisecond, serverCPU: 330 * time.Millisecond, isCPUKnown: true}}
	text := r.text()
	for _, want := range []string{"a machine", "5.20 s", "4.7", "3.8", "LIST 265", "LIST 1,234,567", "50 MiB", "not measured", "CRDs, 100 to 300",
		"0.88 s", "1.2 ", "0.33 s"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
	if got := r.missed(); len(got) != 1 || got[0] != "Empty, 100 CRDs: times faster" {
		t.Errorf("The missed goals are %q", got)
	}
	columns := 0
	for row := range strings.Lines(r.markdown()) {
		if !strings.HasPrefix(row, "|") {
			columns = 0
			continue
		}
		if count := strings.Count(row, "|"); columns == 0 {
			columns = count
		} else if count != columns {
			t.Errorf("A row has %d bars, but the rows above it have %d: %s", count, columns, row)
		}
	}
}

func TestFormat(t *testing.T) {
	for want, got := range map[string]string{
		"0.07 s": formatTime(70 * time.Millisecond), "99.99 s": formatTime(99990 * time.Millisecond),
		"100.0 s": formatTime(99996 * time.Millisecond), "7": formatCount(7), "-1,000": formatCount(-1000),
		"26,500": formatCount(26500), "1,234,567": formatCount(1234567), "20.0": formatRatio(20), nothing: formatRatio(math.NaN()),
		"0.1": formatPower(0.1), "10": formatPower(10), "1k": formatPower(1000), "100k": formatPower(1e5), "10M": formatPower(1e7),
	} {
		if got != want {
			t.Errorf("Got %q, want %q", got, want)
		}
	}
}

func TestLimitTable(t *testing.T) {
	seconds := func(values ...float64) []sample {
		var samples []sample
		for _, value := range values {
			removed := time.Duration(value * float64(time.Second))
			samples = append(samples, sample{
				removed: removed, serverCPU: removed / 10, controllerCPU: removed / 100,
				latencies: []time.Duration{time.Millisecond, 3 * time.Millisecond},
			})
		}
		return samples
	}
	r := report{
		baseline: []time.Duration{2 * time.Millisecond},
		limitLines: []*limitLine{
			{scenario: scenario{title: "empty"}, limit: limit{qps: 20, burst: 30}, samples: seconds(30, 10, 20)},
			{scenario: scenario{title: "empty"}, limit: defaultLimit, samples: seconds(1)},
			{scenario: scenario{title: "not measured"}, limit: defaultLimit},
		},
	}
	want := [][]string{
		{"nothing is deleted", "-", "-", "-", "-", "-", "2.00 ms", "2.00 ms", "1"},
		{"empty", "20/s, burst 30", "20.00 s", "30.00 s", "2.00 s", "0.20 s", "2.00 ms", "3.00 ms", "6"},
		{"empty", "none", "1.00 s", "1.00 s", "0.10 s", "0.01 s", "2.00 ms", "2.98 ms", "2"},
	}
	tables := r.tables()
	if len(tables) != 1 || !reflect.DeepEqual(tables[0].Rows, want) {
		t.Errorf("The tables are %v, want one table with the rows %v", tables, want)
	}
	for _, row := range tables[0].Rows {
		if len(row) != len(tables[0].Header) {
			t.Errorf("Row %q has %d cells, want %d", row[0], len(row), len(tables[0].Header))
		}
	}
}

func TestCharts(t *testing.T) {
	files := testReport().charts("dir/chart.svg")
	if len(files) != 2 {
		t.Fatalf("The report has %d charts, want one for each number of API servers", len(files))
	}
	for path, want := range map[string][]string{
		"dir/chart.svg":             {"empty, 300 CRDs", "one API server", "265", "kube-controller-manager"},
		"dir/chart-two-servers.svg": {"20 Pods, 5 s grace period", "two API servers", "1,234,567", "nslifecycle"},
	} {
		decoder := xml.NewDecoder(bytes.NewReader(files[path]))
		for {
			if _, err := decoder.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s is not XML: %v", path, err)
			}
		}
		for _, text := range want {
			if !strings.Contains(string(files[path]), text+"<") {
				t.Errorf("%q is not in %s", text, path)
			}
		}
	}
	if !strings.Contains(string(files["dir/chart.svg"]), harness.FontFamilies) {
		t.Error("The chart specifies no fallback fonts")
	}
	if strings.Contains(string(files["dir/chart.svg"]), "20 pods") {
		t.Error("The chart for one API server contains a case with two API servers")
	}
}
