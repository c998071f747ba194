// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"time"

	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
)

type options struct {
	harness.Flags

	namespaces string
	crds       int
	objects    int
	sample     int
	idle       time.Duration
	stall      time.Duration
	churn      time.Duration
	churnRate  float64

	sizes []int
}

func (o *options) bind(flags *flag.FlagSet) {
	o.Bind(flags)
	flags.StringVar(&o.namespaces, "namespaces", "500,1000,2000,5000,10000",
		"Increasing numbers of namespaces at which to measure.")
	flags.IntVar(&o.crds, "crds", 300, "CustomResourceDefinitions.")
	flags.IntVar(&o.objects, "objects", 16, "Objects in each namespace in addition to those of the template.")
	flags.IntVar(&o.sample, "sample", 100, "Namespaces to create and delete at once at each step.")
	flags.DurationVar(&o.idle, "idle", 20*time.Second, "Duration of the measurement while nothing changes.")
	flags.DurationVar(&o.stall, "stall", 2*time.Minute, "Time without progress after which the benchmark fails.")
	flags.DurationVar(&o.churn, "churn", 0,
		"Duration for which namespaces are created and deleted after the last step, for example 2h.")
	flags.Float64Var(&o.churnRate, "churn-rate", 2, "Creations, and deletions, per second with --churn.")
}

// complete applies --quick, and parses and validates the options.
func (o *options) complete() error {
	if o.Quick {
		o.namespaces, o.crds, o.objects, o.sample, o.idle = "20,40", 5, 2, 5, 3*time.Second
		if o.churn > 0 {
			o.churn = 20 * time.Second
		}
	}
	var err error
	if o.sizes, err = harness.ParseNumbers("namespaces", o.namespaces); err != nil {
		return err
	}
	if !slices.Equal(o.sizes, slices.Compact(slices.Sorted(slices.Values(o.sizes)))) {
		return errors.New("--namespaces must contain increasing numbers")
	}
	if o.sample < 1 || o.crds < 0 || o.objects < 0 || o.idle <= 0 || o.churnRate <= 0 {
		return errors.New("--sample, --idle and --churn-rate must be positive; --crds and --objects must not be negative")
	}
	return nil
}

func main() {
	var opts options
	opts.bind(flag.CommandLine)
	flag.Parse()
	harness.Main("bench-scale", func(ctx context.Context) error { return run(ctx, opts) })
}

func run(ctx context.Context, opts options) error {
	if err := opts.complete(); err != nil {
		return err
	}
	// After an error, the results so far are printed.
	result, err := measure(ctx, opts)
	tables := result.tables()
	if err != nil {
		fmt.Print(harness.Text(result.facts, tables))
		return err
	}
	return opts.Publish(result.facts, tables)
}
