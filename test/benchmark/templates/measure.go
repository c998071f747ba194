// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
)

// The cases. All but caseAtOnce share a control plane, and run in this order.
const (
	caseSingle   = "single"
	caseRestored = "restored"
	caseEarly    = "early"
	caseChanged  = "changed"
	caseEnforced = "enforced"
	caseAtOnce   = "at-once"
)

var caseNames = []string{caseSingle, caseRestored, caseEarly, caseChanged, caseEnforced, caseAtOnce}

// writerCounts are the numbers of concurrent writers in caseEarly.
var writerCounts = []int{1, 8}

// results contains the measurements of a contender.
type results struct {
	// complete and initialized are the times from before the POST until the objects exist, and until the
	// creator can write as well.
	complete, initialized []time.Duration
	// enforced is the time until the creator can write and the quota is enforced.
	enforced []time.Duration
	// missing is the number of namespaces of these samples that did not get the objects in time.
	missing           int
	deleted, modified []time.Duration
	// notRestored is the number of objects that were not restored in time.
	notRestored int
	// early contains the number of early writes in each namespace, by the number of writers.
	early   map[int][]int
	changes []change
	// crowds contains the measurements of namespaces that are created at once, by their number.
	crowds map[int][]crowd
}

// crowd is a measurement of namespaces that are created at once.
type crowd struct {
	total, complete int
	// took is the time until the last complete namespace is initialized.
	took                     time.Duration
	requests                 int64
	serverCPU, controllerCPU time.Duration
	memory                   int64
	restarts                 int
}

// change is a measurement of a changed template.
type change struct {
	total, updated int
	took           time.Duration
	// initialized contains the times of namespaces that were created meanwhile, as in results.
	initialized []time.Duration
}

// outcome is the result of a run.
type outcome struct {
	facts   []string
	results map[string]*results
	// selected are the measured contenders.
	selected []string
	sizes    []int
}

// measure runs the cases. If it returns an error, the outcome contains the results so far.
func measure(ctx context.Context, opts options) (*outcome, error) {
	result := &outcome{
		facts: harness.DescribeMachine(), results: map[string]*results{}, selected: opts.selected, sizes: opts.sizes,
	}
	for _, name := range opts.selected {
		result.results[name] = &results{early: map[int][]int{}, crowds: map[int][]crowd{}}
	}
	sizes := opts.sizes
	if !opts.has(caseAtOnce) {
		sizes = nil
	}
	for round := range opts.rounds {
		if len(opts.cases) > 0 && opts.cases != caseAtOnce {
			if err := result.turns(ctx, opts, round, "one control plane for all other cases",
				func(t *turn, r *results) error { return t.measureEach(ctx, opts, r) }); err != nil {
				return result, err
			}
		}
		for _, size := range sizes {
			if err := result.turns(ctx, opts, round, fmt.Sprintf("%d namespaces at once", size),
				func(t *turn, r *results) error { return t.measureCrowd(ctx, opts, size, r) }); err != nil {
				return result, err
			}
		}
	}
	return result, nil
}

// turns runs a measurement with each contender on a new control plane. Their order changes from one
// round to the next.
func (o *outcome) turns(
	ctx context.Context, opts options, round int, what string, do func(*turn, *results) error,
) error {
	for i := range opts.selected {
		name := opts.selected[(i+round)%len(opts.selected)]
		harness.Say("Round %d of %d, %s: %s", round+1, opts.rounds, contenderTitles[name], what)
		t, err := startTurn(ctx, name, opts)
		if err != nil {
			return err
		}
		if fact := opts.DescribeServer(t.Version); len(o.facts) > 0 && o.facts[len(o.facts)-1] != fact {
			o.facts = append(o.facts, fact)
		}
		if err := do(t, o.results[name]); err != nil {
			return errors.Join(fmt.Errorf("failed to measure %s: %w%s", name, err, t.lastOutput()), t.stop())
		}
		if err := t.stop(); err != nil {
			return err
		}
	}
	return nil
}

// measureEach measures the cases that share a control plane.
func (t *turn) measureEach(ctx context.Context, opts options, r *results) error {
	for _, step := range []struct {
		name string
		do   func(context.Context, options, *results) error
	}{
		{caseSingle, t.measureSingle}, {caseRestored, t.measureRestored}, {caseEarly, t.measureEarly},
		{caseChanged, t.measureChanged}, {caseEnforced, t.measureEnforced},
	} {
		if !opts.has(step.name) {
			continue
		}
		harness.Say("  %s", step.name)
		if err := t.calm(ctx); err != nil {
			return err
		}
		if err := step.do(ctx, opts, r); err != nil {
			return fmt.Errorf("case %s: %w", step.name, err)
		}
	}
	return nil
}

// calm waits until the API server and the contender use at most half a processor, but not longer
// than a minute: controllers can have work left after the last namespace is complete.
func (t *turn) calm(ctx context.Context) error {
	last, err := t.cpu()
	for deadline := time.Now().Add(time.Minute); err == nil && time.Now().Before(deadline); {
		if err := harness.Sleep(ctx, time.Second); err != nil {
			return err
		}
		var now time.Duration
		if now, err = t.cpu(); now-last <= time.Second/2 {
			return err
		}
		last = now
	}
	return err
}

// cpu returns the processor time of the API server and of the contender.
func (t *turn) cpu() (time.Duration, error) {
	server, _, serverErr := t.ServerCPU()
	used, err := t.usage()
	return server + used.cpu, errors.Join(serverErr, err)
}

// measureCrowd creates namespaces at once.
func (t *turn) measureCrowd(ctx context.Context, opts options, size int, r *results) error {
	if err := t.calm(ctx); err != nil {
		return err
	}
	requests, err := t.requests(ctx)
	if err != nil {
		return err
	}
	serverCPU, _, serverErr := t.ServerCPU()
	before, err := t.usage()
	if err := errors.Join(serverErr, err); err != nil {
		return err
	}
	names := t.nextNames(size)
	initialized := t.observer.track((*state).isInitialized, names...)
	profiled := make(chan error, 1)
	go func() { profiled <- t.profile(ctx, opts, size) }()
	began := time.Now()
	if err := t.createNamespaces(ctx, names, opts.clients); err != nil {
		// Namespaces that could not be created are counted as incomplete.
		harness.Say("  %v", err)
	}
	if err := errors.Join(t.observer.wait(ctx, initialized, opts.stall), <-profiled); err != nil {
		return err
	}
	if err := t.calm(ctx); err != nil {
		return err
	}
	requestsAfter, err := t.requests(ctx)
	if err != nil {
		return err
	}
	serverCPUAfter, _, serverErr := t.ServerCPU()
	after, err := t.usage()
	one := crowd{
		total: size, complete: len(initialized.met), took: max(0, initialized.last.Sub(began)),
		requests:  requestsAfter - requests,
		serverCPU: serverCPUAfter - serverCPU, controllerCPU: after.cpu - before.cpu,
		memory: after.memory, restarts: after.restarts - before.restarts,
	}
	r.crowds[size] = append(r.crowds[size], one)
	harness.Say("  %d of %d in %s", one.complete, one.total, harness.FormatDuration(one.took))
	return errors.Join(serverErr, err)
}

// profileTime is longer than the creation of 500 namespaces, because an idle API server adds nothing to a profile.
const profileTime = 20 * time.Second

// profile writes a profile of the API server, and its metrics, which show the cost of each policy, with --profile.
func (t *turn) profile(ctx context.Context, opts options, size int) error {
	if opts.profile == "" {
		return nil
	}
	path := filepath.Join(opts.profile, fmt.Sprintf("%s-%d", t.name, size))
	if err := t.Profile(ctx, path+".pprof", profileTime); err != nil {
		return err
	}
	metrics, err := t.scraper.Get().AbsPath("/metrics").Do(ctx).Raw()
	return errors.Join(err, harness.WriteFile(path+".metrics", metrics))
}

// requests returns the number of requests except those of the benchmark, and except Leases.
func (t *turn) requests(ctx context.Context) (int64, error) {
	sent := t.meter.Read()
	counts, err := harness.ScrapeRequests(ctx, t.scraper, "leases")
	return counts - sent, err
}
