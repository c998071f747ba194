// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"path/filepath"

	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

type options struct {
	harness.Flags

	namespaces    int
	writes        int
	eachPolicy    bool
	kustomization string
}

func (o *options) bind(flags *flag.FlagSet) {
	o.Bind(flags)
	o.BindCheck(flags)
	flags.IntVar(&o.namespaces, "namespaces", 1000, "Namespaces to create on each server for each ratio.")
	flags.IntVar(&o.writes, "writes", 2000, "ConfigMaps to create or update on each server for each ratio.")
	flags.BoolVar(&o.eachPolicy, "each-policy", false,
		"Also measure the creation of namespaces without policies, and with one mutating policy.")
	flags.StringVar(&o.kustomization, "kustomization", filepath.Join(controlplane.Root(), "config", "default"),
		"Directory to install from, to measure changes to the policies.")
}

// complete applies --quick, and validates the options.
func (o *options) complete() error {
	if o.Quick {
		o.namespaces, o.writes = 2*perRound, 2*perRound
	}
	return harness.Require(o.namespaces, o.writes)
}

func main() {
	var opts options
	opts.bind(flag.CommandLine)
	flag.Parse()
	harness.Main("benchmark", func(ctx context.Context) error { return run(ctx, opts) })
}

func run(ctx context.Context, opts options) error {
	if err := opts.complete(); err != nil {
		return err
	}
	outcome, err := measure(ctx, opts)
	if err != nil {
		return err
	}
	return errors.Join(opts.Publish(outcome.facts, outcome.tables()), opts.Verify(outcome.missed()))
}
