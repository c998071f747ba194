// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"

	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
)

type options struct {
	rounds     int
	namespaces int
	atOnce     int
	clients    int
	quick      bool
	check      bool
	fsync      bool
	markdown   string

	// serve, names and kubeconfig are the arguments of a child process.
	serve, names, kubeconfig string
}

func (o *options) bind(flags *flag.FlagSet) {
	flags.IntVar(&o.rounds, "rounds", 3, "Number of rounds.")
	flags.IntVar(&o.namespaces, "namespaces", 30, "Namespaces to create one by one, for each chain and round.")
	flags.IntVar(&o.atOnce, "at-once", 500, "Namespaces to create at once.")
	flags.IntVar(&o.clients, "clients", 32, "Concurrent requests when namespaces are created at once.")
	flags.BoolVar(&o.quick, "quick", false, "Take only a few samples, to test the benchmark itself.")
	flags.BoolVar(&o.check, "check", false, "Exit with status 1 if a goal is missed.")
	flags.BoolVar(&o.fsync, "fsync", false, "Run etcd with fsync.")
	flags.StringVar(&o.markdown, "markdown", "", "File to write the tables to, as Markdown for the documentation.")
	flags.StringVar(&o.serve, "serve", "",
		"Internal: run as an initializer, implemented with pkg/initializer or test/initializers.")
	flags.StringVar(&o.names, "names", "", "Internal: the names of the initializers.")
	flags.StringVar(&o.kubeconfig, "as", "", "Internal: the kubeconfig of the initializers.")
}

func main() {
	var opts options
	opts.bind(flag.CommandLine)
	flag.Parse()
	harness.Main("bench-initializer", func(ctx context.Context) error { return run(ctx, opts) })
}

func run(ctx context.Context, opts options) error {
	if opts.serve != "" {
		return serve(ctx, opts.serve, opts.kubeconfig, strings.Split(opts.names, ","))
	}
	if opts.quick {
		opts.rounds, opts.namespaces, opts.atOnce = 1, 3, 20
	}
	if min(opts.rounds, opts.namespaces, opts.atOnce, opts.clients) < 1 {
		return errors.New("all numbers must be at least 1")
	}
	outcome, err := measure(ctx, opts)
	if err != nil {
		return err
	}
	tables, missed := outcome.tables()
	fmt.Print(harness.Text(outcome.facts, tables))
	if err := harness.WriteTables(opts.markdown, harness.Markdown(outcome.facts, tables)); err != nil {
		return err
	}
	if opts.check && len(missed) > 0 {
		return fmt.Errorf("goals were missed: %s", strings.Join(missed, "; "))
	}
	return nil
}
