// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
)

const (
	// samples is the least number of samples with --churn. There is at least one per minute.
	samples = 10
	// churnCount is the number of namespaces that exist in addition with --churn.
	churnCount = 100
)

// point is a sample with --churn.
type point struct {
	after  time.Duration
	gauges gauges
	// watches contains all watches of the API server.
	watches int
	// unfinished is the number of initializing and terminating namespaces.
	unfinished int
	rate       rate
}

// measureChurn creates and deletes namespaces at a constant rate. It then waits until the operator has
// finished all of them.
func (c *cluster) measureChurn(ctx context.Context, opts options) ([]point, error) {
	harness.Say("Creating and deleting %g namespaces per second for %s", opts.churnRate, opts.churn)
	// The rate of deletions is constant from the first sample on.
	names := c.nextNames(churnCount)
	opened := c.observer.expectOpen(names)
	if err := harness.InParallel(ctx, len(names), func(ctx context.Context, i int) error {
		return c.createNamespace(ctx, names[i])
	}); err != nil {
		return nil, err
	}
	if err := errors.Join(c.wait(ctx, opened), c.calm(ctx)); err != nil {
		return nil, err
	}
	churnContext, stop := context.WithTimeout(ctx, opts.churn)
	defer stop()
	churned := make(chan error, 1)
	go func() {
		err := c.churn(ctx, churnContext.Done(), opts.churnRate, names)
		stop()
		churned <- err
	}()
	points, err := c.sample(ctx, churnContext.Done(), min(time.Minute, opts.churn/samples))
	stop()
	if err := errors.Join(err, <-churned); err != nil {
		return points, err
	}
	err = wait.PollUntilContextTimeout(ctx, pollInterval, c.stall, true, func(context.Context) (bool, error) {
		return c.observer.countUnfinished() == 0, nil
	})
	if err != nil {
		return points, fmt.Errorf("failed to wait for %d namespaces after the last change: %w",
			c.observer.countUnfinished(), err)
	}
	return points, c.calm(ctx)
}

// churn creates namespaces at a constant rate, and deletes the oldest ones at the same rate.
func (c *cluster) churn(ctx context.Context, done <-chan struct{}, perSecond float64, names []string) error {
	group, groupContext := errgroup.WithContext(ctx)
	group.SetLimit(harness.Parallel)
	ticker := time.NewTicker(time.Duration(float64(time.Second) / perSecond))
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return group.Wait()
		case <-groupContext.Done():
			return group.Wait()
		case <-ticker.C:
		}
		name, oldest := c.nextNames(1)[0], names[0]
		names = append(names[1:], name)
		group.Go(func() error { return c.createNamespace(groupContext, name) })
		group.Go(func() error { return c.deleteNamespace(groupContext, oldest) })
	}
}

// sample samples the manager until it is done.
func (c *cluster) sample(ctx context.Context, done <-chan struct{}, interval time.Duration) ([]point, error) {
	var points []point
	began := time.Now()
	before, err := c.readUsage(ctx)
	for err == nil {
		select {
		case <-done:
			return points, nil
		case <-c.manager.Exited():
			return points, fmt.Errorf("the manager exited; last output: %s", c.manager.LastOutput())
		case <-time.After(interval):
		}
		one := point{after: time.Since(began), unfinished: c.observer.countUnfinished()}
		var after usage
		var valuesErr, watchesErr error
		after, err = c.readUsage(ctx)
		one.gauges, valuesErr = c.readManager(ctx)
		one.watches, watchesErr = harness.ScrapeWatches(ctx, c.scraper)
		err = errors.Join(err, valuesErr, watchesErr)
		seconds := after.at.Sub(before.at).Seconds()
		server, manager, requests := after.minus(before, rate{})
		one.rate = rate{server.Seconds() / seconds, manager.Seconds() / seconds, requests / seconds}
		before = after
		points = append(points, one)
	}
	return points, err
}
