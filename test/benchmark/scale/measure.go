// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/nslifecycle/nslifecycle/internal/finalization"
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
	// lists are the requests of the finalization controller that list objects.
	lists float64
}

// measure runs the benchmark. If it returns an error, the outcome contains the results so far.
func measure(ctx context.Context, opts options) (result *outcome, err error) {
	result = &outcome{facts: harness.DescribeMachine()}
	c, err := startCluster(ctx, opts)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	result.facts = append(result.facts, opts.DescribeServer(c.Version),
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
	initialized := c.observer.expectInitialized(names)
	harness.Say("  creation")
	s.creation, err = c.measureCost(ctx, names, s.idle.rate, func(began []time.Time) (*harness.Tracker, error) {
		return initialized, harness.InParallel(ctx, len(names), func(ctx context.Context, i int) error {
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
	result.lists = (after.lists - before.lists) / float64(count)
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

// The metrics of the manager that the benchmark reads.
const (
	residentMemory = "process_resident_memory_bytes"
	liveHeap       = "go_gc_heap_live_bytes"
	goroutines     = "go_goroutines"
	requestsTotal  = "rest_client_requests_total"
	// finalizationRequests has the label purpose, and no samples before the first deletion.
	finalizationRequests = "nslifecycle_finalization_requests_total"
)

// listPurposes are the purposes of the requests that list objects.
var listPurposes = []string{string(finalization.PurposeSharedList), string(finalization.PurposeList)}

// usage is what the processes have used so far.
type usage struct {
	at              time.Time
	server, manager time.Duration
	requests, lists float64
}

// rate is a usage per second.
type rate struct{ server, manager, requests float64 }

// minus returns the usage since an earlier one, without the usage at a constant rate in this time.
func (u usage) minus(before usage, constant rate) (server, manager time.Duration, requests float64) {
	seconds := u.at.Sub(before.at).Seconds()
	without := func(used time.Duration, rate float64) time.Duration {
		return used - time.Duration(rate*seconds*float64(time.Second))
	}
	return without(u.server-before.server, constant.server), without(u.manager-before.manager, constant.manager),
		u.requests - before.requests - constant.requests*seconds
}

// gauges are the values of the manager's metrics by name. Those with several samples are summed.
type gauges map[string]float64

func (c *cluster) readManager(ctx context.Context) (gauges, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.metrics, nil)
	if err != nil {
		return nil, err
	}
	response, err := c.metricsClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("failed to read the metrics of the manager: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("failed to read the metrics of the manager: %s", response.Status)
	}
	names := []string{residentMemory, liveHeap, goroutines, requestsTotal}
	result := gauges{}
	read := append(slices.Clone(names), finalizationRequests)
	if err := harness.ReadSamples(response.Body, read, func(name string, labels map[string]string, value float64) {
		if name != finalizationRequests || slices.Contains(listPurposes, labels["purpose"]) {
			result[name] += value
		}
	}); err != nil {
		return nil, err
	}
	for _, name := range names {
		if _, ok := result[name]; !ok {
			return nil, fmt.Errorf("the manager has no metric %s", name)
		}
	}
	return result, nil
}

// processors returns the processor time of the API server and of the manager.
func (c *cluster) processors() (server, manager time.Duration, err error) {
	server, _, err = c.ServerCPU()
	manager, _, managerErr := c.manager.CPU()
	return server, manager, errors.Join(err, managerErr)
}

func (c *cluster) readUsage(ctx context.Context) (usage, error) {
	values, err := c.readManager(ctx)
	if err != nil {
		return usage{}, err
	}
	u := usage{at: time.Now(), requests: values[requestsTotal], lists: values[finalizationRequests]}
	u.server, u.manager, err = c.processors()
	return u, err
}

// calm waits until the API server and the manager use at most half a processor, but not longer than
// a minute: the manager can have work left after the last namespace is complete.
func (c *cluster) calm(ctx context.Context) error {
	server, manager, err := c.processors()
	for deadline := time.Now().Add(time.Minute); err == nil && time.Now().Before(deadline); {
		if err := harness.Sleep(ctx, time.Second); err != nil {
			return err
		}
		before := server + manager
		if server, manager, err = c.processors(); server+manager-before <= time.Second/2 {
			return err
		}
	}
	return err
}
