// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Command demo shows how namespaces are initialized and finalized. It starts a real API server,
// installs nslifecycle, and runs the manager and two small initializers with their ServiceAccounts.
// The tour follows a namespace of an unprivileged user from its creation to the first write. Then it
// follows the deletion of a namespace that has a second namespace finalizer and contains an object
// with a finalizer. The demo verifies each of its statements.
//
// After the tour, the demo keeps running, and prints how to use it from another terminal. Ctrl-C
// stops the demo at any time, and removes everything that it started.
//
//	--once          exits after the tour, with status 1 if any statement is wrong
//	--no-tour       keeps running without a tour; the manager logs to stderr
//	--search-index  also runs examples/search-index, and shows it at the end of the tour
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// logTail is the number of bytes at the end of the log that are printed after a failure.
const logTail = 8 << 10

// errStopped is returned if the user stops the tour.
var errStopped = errors.New("the demo was stopped before the end of the tour")

type options struct {
	once        bool
	noTour      bool
	searchIndex bool
}

func main() {
	var opts options
	flag.BoolVar(&opts.once, "once", false, "Exit after the tour.")
	flag.BoolVar(&opts.noTour, "no-tour", false, "Keep running without a tour.")
	flag.BoolVar(&opts.searchIndex, "search-index", false, "Also run and show examples/search-index.")
	flag.Parse()
	if flag.NArg() > 0 || (opts.once && opts.noTour) {
		fmt.Fprintln(flag.CommandLine.Output(), "Usage: demo [--once | --no-tour] [--search-index]")
		flag.Usage()
		os.Exit(2)
	}
	if err := run(opts); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run runs the demo and always cleans up.
func run(opts options) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	out := newNarrator(os.Stdout, isTerminal(os.Stdout), cancel)
	stopping := sync.OnceFunc(func() { out.say("\nStopping ...") })
	onSignal(func() {
		stopping()
		cancel()
	})

	logFile, err := setUpLog(opts)
	if err != nil {
		return err
	}
	log := ""
	if logFile != nil {
		log = logFile.Name()
	}
	d := newDemo(out, log)
	if opts.noTour {
		d.output = os.Stderr
	} else if logFile != nil {
		d.output = logFile
	}
	playErr := d.play(ctx, opts)
	stopping()
	stopErr := d.stop()
	// Check the context last, because Ctrl-C can kill kubectl before this process receives the
	// signal.
	switch wasStopped := ctx.Err() != nil; {
	case wasStopped && d.isComplete:
		playErr = nil
	case wasStopped:
		playErr = errStopped
	case playErr != nil:
		playErr = fmt.Errorf("the demo failed: %w", playErr)
	}
	hasFailed := playErr != nil && !errors.Is(playErr, errStopped)
	return errors.Join(playErr, stopErr, removeLog(logFile, hasFailed))
}

// onSignal calls f at the first signal that requests termination. It ignores later signals, because
// `timeout make demo` sends two signals and the clean-up must complete. SIGQUIT still terminates
// the program immediately.
func onSignal(f func()) {
	// Writing to a closed output must return an error instead of terminating the program.
	signal.Ignore(syscall.SIGPIPE)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		<-signals
		f()
	}()
}

// setUpLog redirects the logs of the manager and of client-go to a file, so that they do not
// interrupt the tour. Without a tour, the logs are written to stderr.
func setUpLog(opts options) (*os.File, error) {
	var file *os.File
	out := os.Stderr
	if !opts.noTour {
		var err error
		if file, err = os.CreateTemp("", "nslifecycle-demo-*.log"); err != nil {
			return nil, fmt.Errorf("failed to create a log file: %w", err)
		}
		out = file
	}
	ctrl.SetLogger(zap.New(zap.WriteTo(out), zap.ConsoleEncoder()))
	klog.SetLogger(ctrl.Log.WithName("client-go"))
	return file, nil
}

// removeLog removes the log file. If the demo failed, it prints the end of the log first.
func removeLog(file *os.File, hasFailed bool) error {
	if file == nil {
		return nil
	}
	if log, err := os.ReadFile(file.Name()); err == nil && hasFailed {
		if len(log) > logTail {
			_, log, _ = bytes.Cut(log[len(log)-logTail:], []byte("\n"))
		}
		fmt.Fprintf(os.Stderr, "The end of the log:\n%s\n", log)
	}
	return errors.Join(file.Close(), os.Remove(file.Name()))
}
