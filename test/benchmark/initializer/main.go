// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"strings"

	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
)

type options struct {
	harness.Flags

	rounds     int
	namespaces int
	atOnce     int
	clients    int

	// serve and names are the arguments of a child process.
	serve, names string
}

func (o *options) bind(flags *flag.FlagSet) {
	o.Bind(flags)
	o.BindCheck(flags)
	flags.IntVar(&o.rounds, "rounds", 3, "Number of rounds.")
	flags.IntVar(&o.namespaces, "namespaces", 30, "Namespaces to create one by one, for each chain and round.")
	flags.IntVar(&o.atOnce, "at-once", 500, "Namespaces to create at once.")
	flags.IntVar(&o.clients, "clients", 32, "Concurrent requests when namespaces are created at once.")
	flags.StringVar(&o.serve, "serve", "", "Internal: run initializers with this kubeconfig.")
	flags.StringVar(&o.names, "names", "", "Internal: the names of the initializers.")
}

func main() {
	var opts options
	opts.bind(flag.CommandLine)
	flag.Parse()
	harness.Main("bench-initializer", func(ctx context.Context) error { return run(ctx, opts) })
}

func run(ctx context.Context, opts options) error {
	if opts.serve != "" {
		return serve(ctx, opts.serve, strings.Split(opts.names, ","))
	}
	if opts.Quick {
		opts.rounds, opts.namespaces, opts.atOnce = 1, 3, 20
	}
	if err := harness.Require(opts.rounds, opts.namespaces, opts.atOnce, opts.clients); err != nil {
		return err
	}
	outcome, err := measure(ctx, opts)
	if err != nil {
		return err
	}
	tables, missed := outcome.tables()
	return errors.Join(opts.Publish(outcome.facts, tables), opts.Verify(missed))
}
