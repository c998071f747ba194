// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Command demo shows how namespaces begin and end, on a real API server that it starts
// for itself: it installs the project there, runs the manager as its own ServiceAccount
// and two small initializers as theirs, and then follows one namespace of an ordinary
// user from its creation to its first write. A second namespace is deleted, with an
// object in it that holds a finalizer and a token of a second agent, and followed to its
// end. Whatever it tells, it has checked.
//
// After the tour it stays up, and what it prints is enough to go on in another terminal.
// Ctrl-C ends it at any time, and then nothing that it started is left.
//
//	--once          exits after the tour, with status 0, or 1 if anything went otherwise than told
//	--no-tour       starts everything and stays up; the manager's log goes to stderr
//	--search-index  runs examples/search-index as well, and shows it at the end of the tour
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

// logTail is how much of the log is printed when something fails: the file is gone then.
const logTail = 8 << 10

// errStopped is what becomes of a tour that somebody stopped.
var errStopped = errors.New("the demo was stopped before its end")

type options struct {
	once        bool
	noTour      bool
	searchIndex bool
}

func main() {
	var opts options
	flag.BoolVar(&opts.once, "once", false, "Exit after the tour instead of staying up.")
	flag.BoolVar(&opts.noTour, "no-tour", false, "Start everything and stay up, without a tour.")
	flag.BoolVar(&opts.searchIndex, "search-index", false, "Run examples/search-index as well, and show it.")
	flag.Parse()
	if flag.NArg() > 0 || (opts.once && opts.noTour) {
		fmt.Fprintln(flag.CommandLine.Output(), "The demo takes --once or --no-tour, not both, and --search-index.")
		flag.Usage()
		os.Exit(2)
	}
	if err := run(opts); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run plays the demo and cleans up after it, whatever happens.
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
	// Asked only now: where Ctrl-C killed a kubectl, that may be heard of before the signal.
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

// onSignal calls f at the first signal that asks the program to stop. All later ones are
// dropped: `timeout make demo` sends two, and the clean-up must not end half-way. SIGQUIT
// still ends the program at once.
func onSignal(f func()) {
	// Output that nobody reads any more is an error of the write, not the end.
	signal.Ignore(syscall.SIGPIPE)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		<-signals
		f()
	}()
}

// setUpLog keeps the logs of the manager and of client-go out of the tour: they go to a
// file. Without a tour they go to stderr, and there is no file.
func setUpLog(opts options) (*os.File, error) {
	var file *os.File
	out := os.Stderr
	if !opts.noTour {
		var err error
		if file, err = os.CreateTemp("", "nslifecycle-demo-*.log"); err != nil {
			return nil, fmt.Errorf("making a log file: %w", err)
		}
		out = file
	}
	ctrl.SetLogger(zap.New(zap.WriteTo(out), zap.ConsoleEncoder()))
	klog.SetLogger(ctrl.Log.WithName("client-go"))
	return file, nil
}

// removeLog removes the log file; of a demo that failed, it prints the end of it first.
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
