// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/tools/go/packages"

	"github.com/nslifecycle/nslifecycle/internal/metrics"
)

// description matches the string representation of a prometheus.Desc, which has no accessors for
// its fields.
var description = regexp.MustCompile(`^Desc\{fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"),` +
	`(?: unit: "[^"]*",)? constLabels: \{\}, variableLabels: \{(.*)\}\}$`)

type metric struct {
	name, kind, help string
	labels           []string
}

// renderMetrics renders the metrics that the manager registers, and the values of their labels.
func renderMetrics(source map[string]*packages.Package) (string, error) {
	var all []metric
	for _, collector := range metrics.Collectors() {
		descriptions := make(chan *prometheus.Desc, 100)
		collector.Describe(descriptions)
		close(descriptions)
		for one := range descriptions {
			parsed, err := parseDescription(one.String())
			if err != nil {
				return "", err
			}
			parsed.kind = kindOf(collector)
			all = append(all, parsed)
		}
	}
	slices.SortFunc(all, func(a, b metric) int { return cmp.Compare(a.name, b.name) })
	var out strings.Builder
	out.WriteString("# Metrics of the manager\n\n" +
		"The manager also serves the metrics of controller-runtime and of the Go runtime.\n\n" +
		"| Name | Type | Labels | Description |\n| --- | --- | --- | --- |\n")
	for _, one := range all {
		fmt.Fprintf(&out, "| %s | %s | %s | %s |\n", code(one.name), one.kind, codes(one.labels), cell(one.help))
	}
	return out.String() + "\n" + renderLabels(source), nil
}

// renderLabels renders the label values that docs/reference/conditions.md does not describe.
func renderLabels(source map[string]*packages.Package) string {
	var out strings.Builder
	out.WriteString("## Values of labels\n\n" +
		"For `cause`, and for `reason` of other metrics, see [Conditions](conditions.md). `active` is the status of a " +
		"condition. In the metrics of blocked and oldest namespaces, `state` is `Initializing`, `Failed` or " +
		"`Terminating`.\n\n" +
		"| Metric | Label | Value | Description |\n| --- | --- | --- | --- |\n")
	for _, label := range []struct{ path, prefix, metric, label string }{
		{"/internal/metrics", "Outcome", "nslifecycle_initialization_duration_seconds", "outcome"},
		{"/internal/finalization", "Outcome", "nslifecycle_finalization_duration_seconds", "outcome"},
		{"/internal/finalization", "Purpose", "nslifecycle_finalization_requests_total", "purpose"},
		{"/internal/finalization", "Terminating", "nslifecycle_namespaces_terminating", "reason"},
		{"/internal/hold", "Outcome", "nslifecycle_hold_writes_total", "outcome"},
		{"/internal/metrics", "Template", "nslifecycle_template_namespaces", "state"},
		{"/internal/template/plan", "Action", "nslifecycle_template_writes_total", "action"},
		{"/internal/metrics", "Result", "nslifecycle_diagnoses_total", "result"},
	} {
		for _, group := range collectConstants(source[label.path], label.prefix, nil) {
			for _, value := range group.constants {
				fmt.Fprintf(&out, "| %s | %s | %s | %s |\n", code(label.metric), code(label.label), code(value.value),
					cell(value.description))
			}
		}
	}
	return out.String()
}

func parseDescription(text string) (metric, error) {
	match := description.FindStringSubmatch(text)
	if match == nil {
		return metric{}, fmt.Errorf("failed to parse the description of a metric: %s", text)
	}
	name, nameErr := strconv.Unquote(match[1])
	help, helpErr := strconv.Unquote(match[2])
	if nameErr != nil || helpErr != nil {
		return metric{}, fmt.Errorf("failed to parse the description of a metric: %s", text)
	}
	result := metric{name: name, help: help}
	if match[3] != "" {
		result.labels = strings.Split(match[3], ",")
	}
	return result, nil
}

// kindOf returns the type of a collector's metrics. This project's own collectors export only
// gauges.
func kindOf(collector prometheus.Collector) string {
	switch collector.(type) {
	case *prometheus.CounterVec:
		return "counter"
	case *prometheus.HistogramVec, prometheus.Histogram:
		return "histogram"
	case prometheus.Gauge:
		return "gauge"
	case prometheus.Counter:
		return "counter"
	}
	return "gauge"
}
