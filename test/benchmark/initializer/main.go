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

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

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

	// serve is what a child process does, with the other two.
	serve, names, kubeconfig string
}

func (o *options) bind(flags *flag.FlagSet) {
	flags.IntVar(&o.rounds, "rounds", 3, "How often everything is measured.")
	flags.IntVar(&o.namespaces, "namespaces", 30, "Namespaces to create one after another, for each chain and round.")
	flags.IntVar(&o.atOnce, "at-once", 500, "Namespaces to create at once.")
	flags.IntVar(&o.clients, "clients", 32, "Requests at a time while namespaces are created at once.")
	flags.BoolVar(&o.quick, "quick", false, "Measure next to nothing, to see whether everything works.")
	flags.BoolVar(&o.check, "check", false, "Exit with status 1 where a goal is missed.")
	flags.BoolVar(&o.fsync, "fsync", false, "Let etcd wait for the disk.")
	flags.StringVar(&o.markdown, "markdown", "", "A file to write the tables to, for the documentation.")
	flags.StringVar(&o.serve, "serve", "", "Not for people: be an initializer, made with the library or by hand.")
	flags.StringVar(&o.names, "names", "", "Not for people: the names to serve.")
	flags.StringVar(&o.kubeconfig, "as", "", "Not for people: the kubeconfig to serve with.")
}

func main() {
	var opts options
	opts.bind(flag.CommandLine)
	flag.Parse()
	// What a client library has to say in passing would tear the table apart.
	ctrl.SetLogger(klog.Background())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, opts)
	if err != nil && ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench-initializer: %v\n", err)
		os.Exit(1)
	}
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
	if opts.markdown != "" {
		if err := os.WriteFile(opts.markdown, []byte(harness.Markdown(outcome.facts, tables)), 0o644); err != nil {
			return fmt.Errorf("writing the tables: %w", err)
		}
	}
	if opts.check && len(missed) > 0 {
		return fmt.Errorf("goals were missed: %s", strings.Join(missed, "; "))
	}
	return nil
}
