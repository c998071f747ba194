// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
)

const defaultAtOnce = "500,1000"

type options struct {
	contenders string
	cases      string
	rounds     int
	single     int
	atOnce     string
	clients    int
	changed    int
	restored   int
	early      int
	steady     time.Duration
	stall      time.Duration
	kill       bool
	quick      bool
	check      bool
	fsync      bool
	kyverno    string
	markdown   string

	// serve is the argument of the process of the bare client.
	serve string

	selected []string
	sizes    []int
}

func (o *options) bind(flags *flag.FlagSet) {
	flags.StringVar(&o.contenders, "contenders", strings.Join(contenderNames, ","), "Contenders to measure.")
	flags.StringVar(&o.cases, "cases", strings.Join(caseNames, ","), "Cases to measure.")
	flags.IntVar(&o.rounds, "rounds", 1, "Number of rounds.")
	flags.IntVar(&o.single, "single", 50, "Namespaces to create one by one.")
	flags.StringVar(&o.atOnce, "at-once", defaultAtOnce,
		"Numbers of namespaces to create at once, each on a new control plane.")
	flags.IntVar(&o.clients, "clients", 32, "Concurrent requests when namespaces are created at once.")
	flags.IntVar(&o.changed, "changed", 200, "Namespaces that exist when the template changes.")
	flags.IntVar(&o.restored, "restored", 20, "Objects to delete, and objects to modify.")
	flags.IntVar(&o.early, "early", 5, "Namespaces to write to while they are created, for each number of writers.")
	flags.DurationVar(&o.steady, "steady", 20*time.Second, "Duration of the measurement of the steady state.")
	flags.DurationVar(&o.stall, "stall", time.Minute,
		"Time without progress after which namespaces without their objects are counted as incomplete.")
	flags.BoolVar(&o.kill, "kill", false,
		"Kill the controllers when half of the namespaces that are created at once are complete.")
	flags.BoolVar(&o.quick, "quick", false, "Take only a few samples, to test the benchmark itself.")
	flags.BoolVar(&o.check, "check", false, "Exit with status 1 if a goal is missed.")
	flags.BoolVar(&o.fsync, "fsync", false, "Run etcd with fsync.")
	flags.StringVar(&o.kyverno, "kyverno", filepath.Join(controlplane.Root(), "bin", "kyverno"),
		"Directory with Kyverno's programs and manifest (make kyverno).")
	flags.StringVar(&o.markdown, "markdown", "", "File to write the tables to, as Markdown for the documentation.")
	flags.StringVar(&o.serve, "serve", "", "Internal: run as the bare client with this kubeconfig.")
}

// complete applies --quick, and parses and validates the options.
func (o *options) complete() error {
	if o.quick {
		o.rounds, o.single, o.changed, o.restored, o.early, o.steady = 1, 5, 15, 3, 1, 5*time.Second
		if o.atOnce == defaultAtOnce {
			o.atOnce = "20"
		}
	}
	o.selected = strings.Split(o.contenders, ",")
	for _, name := range o.selected {
		if !slices.Contains(contenderNames, name) {
			return fmt.Errorf("unknown contender %q", name)
		}
	}
	for name := range strings.SplitSeq(o.cases, ",") {
		if !slices.Contains(caseNames, name) {
			return fmt.Errorf("unknown case %q", name)
		}
	}
	for text := range strings.SplitSeq(o.atOnce, ",") {
		size, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("failed to parse --at-once: %w", err)
		}
		o.sizes = append(o.sizes, size)
	}
	if min(o.rounds, o.single, slices.Min(o.sizes), o.clients, o.changed, o.restored, o.early) < 1 {
		return errors.New("all numbers must be at least 1")
	}
	return nil
}

func (o *options) has(name string) bool { return slices.Contains(strings.Split(o.cases, ","), name) }

func main() {
	var opts options
	opts.bind(flag.CommandLine)
	flag.Parse()
	harness.Main("bench-templates", func(ctx context.Context) error { return run(ctx, opts) })
}

func run(ctx context.Context, opts options) error {
	if opts.serve != "" {
		return serve(ctx, opts.serve)
	}
	if err := opts.complete(); err != nil {
		return err
	}
	// After an error, the results so far are printed.
	outcome, err := measure(ctx, opts)
	tables, missed := outcome.tables()
	fmt.Print(harness.Text(outcome.facts, tables))
	if err != nil {
		return err
	}
	if err := harness.WriteTables(opts.markdown, harness.Markdown(outcome.facts, tables)); err != nil {
		return err
	}
	if opts.check && len(missed) > 0 {
		return fmt.Errorf("goals were missed: %s", strings.Join(missed, "; "))
	}
	return nil
}
