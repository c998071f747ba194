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
	"path/filepath"
	"strings"
	"syscall"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
)

type options struct {
	namespaces    int
	writes        int
	oneByOne      int
	atOnce        int
	clients       int
	quick         bool
	check         bool
	eachPolicy    bool
	mechanisms    bool
	fsync         bool
	markdown      string
	kustomization string
}

func (o *options) bind(flags *flag.FlagSet) {
	flags.IntVar(&o.namespaces, "namespaces", 1000, "Namespaces to create on each server for each ratio.")
	flags.IntVar(&o.writes, "writes", 2000, "ConfigMaps to create or update on each server for each ratio.")
	flags.IntVar(&o.oneByOne, "one-by-one", 100,
		"Namespaces to create one by one, each after the previous one is initialized.")
	flags.IntVar(&o.atOnce, "at-once", 500, "Namespaces to create at once.")
	flags.IntVar(&o.clients, "clients", 32, "Concurrent requests when namespaces are created at once.")
	flags.BoolVar(&o.quick, "quick", false, "Take only a few samples, to test the benchmark itself.")
	flags.BoolVar(&o.check, "check", false, "Exit with status 1 if a goal is missed.")
	flags.BoolVar(&o.eachPolicy, "each-policy", false,
		"Also measure the creation of namespaces with each admission policy alone.")
	flags.BoolVar(&o.mechanisms, "mechanisms", false,
		"Also compare the creation of namespaces by policies and by webhooks, for different initializers and a template.")
	flags.BoolVar(&o.fsync, "fsync", false, "Run etcd with fsync.")
	flags.StringVar(&o.markdown, "markdown", "", "File to write the tables to, as Markdown for the documentation.")
	flags.StringVar(&o.kustomization, "kustomization", filepath.Join(controlplane.Root(), "config", "default"),
		"Directory to install from, to measure changes to the policies.")
}

// complete defaults and validates the options.
func (o *options) complete() error {
	if o.quick {
		o.namespaces, o.writes, o.oneByOne, o.atOnce = 2*perRound, 2*perRound, 5, 20
	}
	for _, count := range []int{o.namespaces, o.writes, o.oneByOne, o.atOnce, o.clients} {
		if count < 1 {
			return errors.New("all numbers must be at least 1")
		}
	}
	return nil
}

func main() {
	var opts options
	opts.bind(flag.CommandLine)
	flag.Parse()
	// Otherwise, controller-runtime's warnings about a missing logger would appear between the
	// tables.
	ctrl.SetLogger(klog.Background())
	if err := run(opts); err != nil {
		fmt.Fprintf(os.Stderr, "benchmark: %v\n", err)
		os.Exit(1)
	}
}

func run(opts options) error {
	if err := opts.complete(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	outcome, err := measure(ctx, opts)
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	if err != nil {
		return err
	}
	fmt.Print(outcome.text())
	if err := harness.WriteTables(opts.markdown, outcome.markdown()); err != nil {
		return err
	}
	if missed := outcome.missed(); opts.check && len(missed) > 0 {
		return fmt.Errorf("goals were missed: %s", strings.Join(missed, "; "))
	}
	return nil
}
