// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
)

type options struct {
	rounds     int
	cases      string
	identities string
	quick      bool
	list       bool
	peerOnly   bool
	oursOnly   bool
	check      bool
	fsync      bool
	limits     bool
	timeout    time.Duration
	markdown   string
	chart      string

	// Derived from the flags.
	selected  []scenario
	servers   []int
	idleFor   time.Duration
	setByUser map[string]bool
}

// both selects one API server and then two.
const both = "both"

func (o *options) bind(flags *flag.FlagSet) {
	flags.IntVar(&o.rounds, "rounds", 3, "Number of measurements of each case with each controller; 1 with --quick.")
	flags.StringVar(&o.cases, "case", "", "Cases to measure, separated by commas.")
	flags.StringVar(&o.identities, "identities", both,
		"Number of simulated API servers: 1, 2, or both in turn; 1 with --quick.")
	flags.BoolVar(&o.quick, "quick", false, "Measure only the cheap cases, once, to test the benchmark itself.")
	flags.BoolVar(&o.list, "list", false, "List the cases and exit.")
	flags.BoolVar(&o.peerOnly, "peer-only", false, "Measure only kube-controller-manager.")
	flags.BoolVar(&o.oursOnly, "ours-only", false, "Measure only nslifecycle.")
	flags.BoolVar(&o.check, "check", false, "Exit with status 1 if a goal is missed.")
	flags.BoolVar(&o.limits, "limits", false,
		"Measure only nslifecycle, with several client-side rate limits, and the effect on another client.")
	flags.BoolVar(&o.fsync, "fsync", false, "Run etcd with fsync.")
	flags.DurationVar(&o.timeout, "timeout", 45*time.Minute,
		"Maximum duration of one measurement. If it is exceeded, the run is aborted.")
	flags.StringVar(&o.markdown, "markdown", "", "File to write the tables to, as Markdown for the documentation.")
	flags.StringVar(&o.chart, "chart", "",
		"File to write a chart to, as SVG. The chart for two API servers is written to a second file, "+
			"with -two-servers in its name.")
}

// complete defaults and validates the options.
func (o *options) complete() error {
	o.idleFor = 20 * time.Second
	if o.quick {
		o.idleFor = 5 * time.Second
		if !o.setByUser["rounds"] {
			o.rounds = 1
		}
		if !o.setByUser["identities"] {
			o.identities = "1"
		}
	}
	if o.limits {
		o.oursOnly, o.identities = true, "1"
		if o.cases == "" {
			o.cases = limitCases
		}
	}
	switch {
	case o.rounds < 1:
		return errors.New("--rounds must be at least 1")
	case o.peerOnly && o.oursOnly:
		return errors.New("--peer-only and --ours-only are mutually exclusive")
	}
	switch o.identities {
	case "1":
		o.servers = []int{1}
	case "2":
		o.servers = []int{2}
	case both:
		o.servers = []int{1, 2}
	default:
		return fmt.Errorf("--identities is %q; it must be 1, 2 or %s", o.identities, both)
	}
	var err error
	o.selected, err = selectScenarios(o.cases, o.quick)
	return err
}

func main() {
	opts := options{setByUser: map[string]bool{}}
	opts.bind(flag.CommandLine)
	flag.Parse()
	flag.Visit(func(f *flag.Flag) { opts.setByUser[f.Name] = true })
	// Otherwise, warnings of controller-runtime about a missing logger would interrupt the tables.
	ctrl.SetLogger(klog.Background())
	if err := run(opts); err != nil {
		fmt.Fprintf(os.Stderr, "bench-finalization: %v\n", err)
		os.Exit(1)
	}
}

func run(opts options) error {
	if err := opts.complete(); err != nil {
		return err
	}
	if opts.list {
		for _, s := range opts.selected {
			fmt.Printf("%-28s %s\n", s.name, s.title)
		}
		return nil
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	outcome, err := measure(ctx, opts)
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	// Publish results that were measured before an error.
	if outcome != nil && (err == nil || len(outcome.measured())+len(outcome.limitLines) > 0) {
		err = errors.Join(err, publish(outcome, opts))
	}
	if err != nil {
		return err
	}
	if missed := outcome.missed(); opts.check && len(missed) > 0 {
		return fmt.Errorf("goals were missed: %s", strings.Join(missed, "; "))
	}
	return nil
}

// publish prints the report and writes it to the requested files.
func publish(outcome *report, opts options) error {
	fmt.Print(outcome.text())
	if err := harness.WriteTables(opts.markdown, outcome.markdown()); err != nil {
		return err
	}
	if opts.chart == "" {
		return nil
	}
	for path, image := range outcome.charts(opts.chart) {
		if err := os.WriteFile(path, image, 0o644); err != nil {
			return fmt.Errorf("failed to write the chart: %w", err)
		}
	}
	return nil
}
