// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
)

// outcome is the result of a run.
type outcome struct {
	facts  []string
	steps  []*step
	points []point
	// hasOwnWatches is true if the watches of the steps are those of the manager only.
	hasOwnWatches bool
}

// step contains the measurements with one number of namespaces.
type step struct {
	namespaces, objects int
	idle                idle
	creation            cost
	change              cost
	deletion            cost
}

// idle is the state of the manager while nothing changes.
type idle struct {
	gauges gauges
	// watches contains all watches of the API server until subtractWatches.
	watches    int
	peakMemory int64
	rate       rate
}

// cost is the cost of a change to a number of namespaces. All but took are per namespace.
type cost struct {
	// times contains the time of each namespace since its own request, and took is that of all.
	times           []time.Duration
	took            time.Duration
	server, manager time.Duration
	requests        float64
}

// measure runs the benchmark. If it returns an error, the outcome contains the results so far.
func measure(ctx context.Context, opts options) (result *outcome, err error) {
	result = &outcome{facts: harness.DescribeMachine()}
	c, err := startCluster(ctx, opts)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	result.facts = append(result.facts, fmt.Sprintf("Kubernetes %s, etcd runs with fsync: %t", c.kubernetes, opts.fsync),
		fmt.Sprintf("%d CustomResourceDefinitions; %d objects in each namespace in addition to those of the template",
			opts.crds, opts.objects))
	for _, size := range opts.sizes {
		harness.Say("%d namespaces", size)
		if err := c.grow(ctx, size, opts.objects); err != nil {
			return result, err
		}
		s, err := c.measureStep(ctx, opts)
		if err != nil {
			return result, fmt.Errorf("failed to measure %d namespaces: %w", size, err)
		}
		result.steps = append(result.steps, s)
	}
	if opts.churn > 0 {
		if result.points, err = c.measureChurn(ctx, opts); err != nil {
			return result, err
		}
	}
	return result, c.subtractWatches(ctx, result)
}

func (c *cluster) measureStep(ctx context.Context, opts options) (*step, error) {
	s := &step{namespaces: len(c.names), objects: len(c.names) * (opts.objects + templateObjects)}
	var err error
	if s.idle, err = c.measureIdle(ctx, opts.idle); err != nil {
		return nil, err
	}
	names := c.nextNames(opts.sample)
	opened := c.observer.expectOpen(names)
	harness.Say("  creation")
	s.creation, err = c.measureCost(ctx, names, s.idle.rate, func(began []time.Time) (*harness.Tracker, error) {
		return opened, harness.InParallel(ctx, len(names), func(ctx context.Context, i int) error {
			began[i] = time.Now()
			return c.createNamespace(ctx, names[i])
		})
	})
	if err != nil {
		return nil, err
	}
	if err := c.fill(ctx, names, opts.objects); err != nil {
		return nil, err
	}
	harness.Say("  change of the template")
	s.change, err = c.measureCost(ctx, c.names, s.idle.rate, func([]time.Time) (*harness.Tracker, error) {
		return c.changeTemplate(ctx)
	})
	if err != nil {
		return nil, err
	}
	removed := c.observer.expectRemoved(names)
	harness.Say("  deletion")
	s.deletion, err = c.measureCost(ctx, names, s.idle.rate, func(began []time.Time) (*harness.Tracker, error) {
		return removed, harness.InParallel(ctx, len(names), func(ctx context.Context, i int) error {
			began[i] = time.Now()
			return c.deleteNamespace(ctx, names[i])
		})
	})
	return s, err
}

func (c *cluster) measureIdle(ctx context.Context, duration time.Duration) (idle, error) {
	if err := c.calm(ctx); err != nil {
		return idle{}, err
	}
	before, err := c.readUsage(ctx)
	if err != nil {
		return idle{}, err
	}
	if err := harness.Sleep(ctx, duration); err != nil {
		return idle{}, err
	}
	after, err := c.readUsage(ctx)
	if err != nil {
		return idle{}, err
	}
	seconds := after.at.Sub(before.at).Seconds()
	server, manager, requests := after.minus(before, rate{})
	result := idle{rate: rate{server.Seconds() / seconds, manager.Seconds() / seconds, requests / seconds}}
	peak, _, peakErr := c.manager.PeakMemory()
	result.peakMemory = peak
	values, valuesErr := c.readManager(ctx)
	result.gauges = values
	result.watches, err = harness.ScrapeWatches(ctx, c.scraper)
	return result, errors.Join(peakErr, valuesErr, err)
}

// measureCost measures a change from before its requests until it has reached all namespaces, and its
// processor time and requests until the API server and the manager are idle again.
func (c *cluster) measureCost(
	ctx context.Context, names []string, constant rate, act func(began []time.Time) (*harness.Tracker, error),
) (cost, error) {
	if err := c.calm(ctx); err != nil {
		return cost{}, err
	}
	before, err := c.readUsage(ctx)
	if err != nil {
		return cost{}, err
	}
	began := make([]time.Time, len(names))
	for i := range began {
		began[i] = before.at
	}
	tracker, err := act(began)
	if err != nil {
		return cost{}, err
	}
	if err := errors.Join(c.wait(ctx, tracker), c.calm(ctx)); err != nil {
		return cost{}, err
	}
	after, err := c.readUsage(ctx)
	result := cost{took: tracker.Last().Sub(before.at)}
	server, manager, requests := after.minus(before, constant)
	count := time.Duration(len(names))
	result.server, result.manager, result.requests = server/count, manager/count, requests/float64(count)
	times := tracker.Times()
	for i, name := range names {
		result.times = append(result.times, times[name].Sub(began[i]))
	}
	return result, err
}

// subtractWatches stops the manager and subtracts the watches that remain: those of the API server, of
// the benchmark and of the initializer.
func (c *cluster) subtractWatches(ctx context.Context, result *outcome) error {
	if err := c.manager.Stop(); err != nil {
		return err
	}
	if err := harness.Sleep(ctx, watchDelay); err != nil {
		return err
	}
	others, err := harness.ScrapeWatches(ctx, c.scraper)
	if err != nil {
		return err
	}
	for _, s := range result.steps {
		s.idle.watches -= others
	}
	result.hasOwnWatches = true
	return nil
}
