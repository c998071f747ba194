// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"math"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

func TestFit(t *testing.T) {
	sizes := []float64{500, 1000, 2000, 5000}
	for name, test := range map[string]struct {
		value    func(float64) float64
		exponent float64
		ok       bool
	}{
		"constant":     {func(float64) float64 { return 7 }, 0, true},
		"proportional": {func(n float64) float64 { return 3 * n }, 1, true},
		"quadratic":    {func(n float64) float64 { return n * n / 1000 }, 2, true},
		"zero":         {func(float64) float64 { return 0 }, 0, false},
		"negative":     {func(n float64) float64 { return 600 - n }, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			var values []float64
			for _, size := range sizes {
				values = append(values, test.value(size))
			}
			exponent, ok := fitExponent(sizes, values)
			if ok != test.ok || math.Abs(exponent-test.exponent) > 1e-9 {
				t.Errorf("fitExponent = %v, %t; want %v, %t", exponent, ok, test.exponent, test.ok)
			}
		})
	}
	if slope, ok := fitSlope([]float64{1, 2, 3}, []float64{10, 14, 12}); !ok || math.Abs(slope-1) > 1e-9 {
		t.Errorf("fitSlope = %v, %t; want 1", slope, ok)
	}
	for name, x := range map[string][]float64{"one value": {5}, "equal values": {5, 5}, "no value": nil} {
		if slope, ok := fitSlope(x, x); ok {
			t.Errorf("fitSlope with %s = %v, want none", name, slope)
		}
	}
}

func TestOptions(t *testing.T) {
	for name, test := range map[string]struct {
		arguments []string
		sizes     []int
		isInvalid bool
	}{
		"the default":          {nil, []int{500, 1000, 2000, 5000, 10000}, false},
		"one size":             {[]string{"--namespaces=7"}, []int{7}, false},
		"--quick":              {[]string{"--quick", "--churn=2h"}, []int{20, 40}, false},
		"decreasing sizes":     {[]string{"--namespaces=7,6"}, nil, true},
		"no number":            {[]string{"--namespaces=7,"}, nil, true},
		"no namespaces":        {[]string{"--namespaces=0"}, nil, true},
		"no sample":            {[]string{"--sample=0"}, nil, true},
		"a chart of one size":  {[]string{"--namespaces=7", "--chart=x"}, nil, true},
		"a churn rate of zero": {[]string{"--churn-rate=0"}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			var opts options
			flags := flag.NewFlagSet("", flag.ContinueOnError)
			opts.bind(flags)
			if err := flags.Parse(test.arguments); err != nil {
				t.Fatal(err)
			}
			err := opts.complete()
			if (err != nil) != test.isInvalid || err == nil && !slices.Equal(opts.sizes, test.sizes) {
				t.Errorf("complete: %v, sizes %v; want sizes %v", err, opts.sizes, test.sizes)
			}
			if opts.Quick && opts.churn > time.Minute {
				t.Errorf("--quick runs for %s", opts.churn)
			}
		})
	}
}

func TestObserver(t *testing.T) {
	o := &observer{unfinished: map[string]bool{}}
	initialized, removed := o.expectInitialized([]string{"a"}), o.expectRemoved([]string{"a"})
	changed := o.expectVersion([]string{"a"}, "2")
	namespace := newNamespace("a")
	namespace.Labels[v1alpha1.LabelInitializing] = "true"
	expect := func(when string, unfinished int, remaining ...int) {
		t.Helper()
		got := []int{initialized.Remaining(), changed.Remaining(), removed.Remaining()}
		if o.countUnfinished() != unfinished || !slices.Equal(got, remaining) {
			t.Errorf("%s: %d are unfinished, %v remain; want %d, %v", when, o.countUnfinished(), got, unfinished, remaining)
		}
	}
	o.observeNamespace(namespace, true)
	expect("initializing", 1, 1, 1, 1)
	delete(namespace.Labels, v1alpha1.LabelInitializing)
	o.observeNamespace(namespace, true)
	expect("initialized", 0, 0, 1, 1)
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a"}, Data: map[string]string{versionKey: "1"}}
	o.observeConfigMap(config, true)
	expect("the version before", 0, 0, 1, 1)
	config.Data[versionKey] = "2"
	o.observeConfigMap(config, true)
	expect("the new version", 0, 0, 0, 1)
	now := metav1.Now()
	namespace.DeletionTimestamp = &now
	o.observeNamespace(namespace, true)
	expect("terminating", 1, 0, 0, 1)
	o.observeNamespace(namespace, false)
	expect("removed", 0, 0, 0, 0)
}

func TestUsageWithoutConstantRate(t *testing.T) {
	start := time.Now()
	before := usage{at: start, server: time.Second, manager: 2 * time.Second, requests: 10}
	after := usage{at: start.Add(10 * time.Second), server: 4 * time.Second, manager: 4 * time.Second, requests: 60}
	server, manager, requests := after.minus(before, rate{server: 0.1, manager: 0.05, requests: 2})
	if server != 2*time.Second || manager != 1500*time.Millisecond || requests != 30 {
		t.Errorf("The usage is %s, %s and %v requests, want 2s, 1.5s and 30", server, manager, requests)
	}
}
