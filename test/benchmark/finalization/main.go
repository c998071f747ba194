// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
)

type options struct {
	harness.Flags

	rounds     int
	cases      string
	identities string
	list       bool
	peerOnly   bool
	oursOnly   bool
	timeout    time.Duration

	// Derived from the flags.
	selected  []scenario
	servers   []int
	idleFor   time.Duration
	setByUser map[string]bool
}

// both selects one API server and then two.
const both = "both"

func (o *options) bind(flags *flag.FlagSet) {
	o.Bind(flags)
	o.BindCheck(flags)
	flags.IntVar(&o.rounds, "rounds", 3, "Number of measurements of each case with each controller; 1 with --quick.")
	flags.StringVar(&o.cases, "case", "",
		"Cases to measure, separated by commas; by default all, or the cheap ones with --quick.")
	flags.StringVar(&o.identities, "identities", both,
		"Number of simulated API servers: 1, 2, or both in turn; 1 with --quick.")
	flags.BoolVar(&o.list, "list", false, "List the cases and exit.")
	flags.BoolVar(&o.peerOnly, "peer-only", false, "Measure only kube-controller-manager.")
	flags.BoolVar(&o.oursOnly, "ours-only", false, "Measure only nslifecycle.")
	flags.DurationVar(&o.timeout, "timeout", 45*time.Minute,
		"Maximum duration of one measurement. If it is exceeded, the run is aborted.")
}

// complete defaults and validates the options.
func (o *options) complete() error {
	o.idleFor = 20 * time.Second
	if o.Quick {
		o.idleFor = 5 * time.Second
		if !o.setByUser["rounds"] {
			o.rounds = 1
		}
		if !o.setByUser["identities"] {
			o.identities = "1"
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
	o.selected, err = selectScenarios(o.cases, o.Quick)
	return err
}

func main() {
	opts := options{setByUser: map[string]bool{}}
	opts.bind(flag.CommandLine)
	flag.Parse()
	flag.Visit(func(f *flag.Flag) { opts.setByUser[f.Name] = true })
	harness.Main("bench-finalization", func(ctx context.Context) error { return run(ctx, opts) })
}

func run(ctx context.Context, opts options) error {
	if err := opts.complete(); err != nil {
		return err
	}
	if opts.list {
		for _, s := range opts.selected {
			fmt.Printf("%-28s %s\n", s.name, s.title)
		}
		return nil
	}
	outcome, err := measure(ctx, opts)
	// Publish results that were measured before an error.
	if outcome != nil && (err == nil || len(outcome.measured()) > 0) {
		err = errors.Join(err, opts.Publish(outcome.facts, outcome.tables()))
	}
	if err != nil {
		return err
	}
	return opts.Verify(outcome.missed())
}
