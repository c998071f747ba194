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
	"strings"
	"time"

	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

const defaultAtOnce = "500,1000"

type options struct {
	harness.Flags

	contenders string
	cases      string
	rounds     int
	single     int
	atOnce     string
	clients    int
	changed    int
	restored   int
	early      int
	stall      time.Duration
	profile    string
	kyverno    string

	// serve is the argument of the process of the bare client.
	serve string

	selected []string
	sizes    []int
}

func (o *options) bind(flags *flag.FlagSet) {
	o.Bind(flags)
	o.BindCheck(flags)
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
	flags.DurationVar(&o.stall, "stall", time.Minute,
		"Time without progress after which namespaces without their objects are counted as incomplete.")
	flags.StringVar(&o.profile, "profile", "",
		"Directory for profiles of the API server in the first 20 seconds of the creations at once, and for its metrics.")
	flags.StringVar(&o.kyverno, "kyverno", filepath.Join(controlplane.Root(), "bin", "kyverno"),
		"Directory with Kyverno's programs and manifest (make kyverno).")
	flags.StringVar(&o.serve, "serve", "", "Internal: run as the bare client with this kubeconfig.")
}

// complete applies --quick, and parses and validates the options.
func (o *options) complete() error {
	if o.Quick {
		o.rounds, o.single, o.changed, o.restored, o.early = 1, 5, 15, 3, 1
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
	var err error
	if o.sizes, err = harness.ParseNumbers("at-once", o.atOnce); err != nil {
		return err
	}
	return harness.Require(o.rounds, o.single, o.clients, o.changed, o.restored, o.early)
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
	if err != nil {
		fmt.Print(harness.Text(outcome.facts, tables))
		return err
	}
	return errors.Join(opts.Publish(outcome.facts, tables), opts.Verify(missed))
}
