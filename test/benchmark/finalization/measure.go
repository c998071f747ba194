// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
)

const (
	// holdTime is the time between the DELETE and the removal of the finalizers.
	holdTime = 2 * time.Second
	// afterwards is the time between the removal of the last namespace and the reading of processor
	// time and memory. During this time, controllers can write Events and clean up caches.
	afterwards = 500 * time.Millisecond
)

// sample is one measurement of one case with one controller.
type sample struct {
	// removed is the time from before the first DELETE until the removal of the last namespace, and
	// afterPods is the part of this time after the removal of the last Pod.
	removed, afterPods time.Duration
	requests           int64
	// Resource usage, if the operating system provides it.
	isCPUKnown, isMemoryKnown bool
	serverCPU, controllerCPU  time.Duration
	peakMemory                int64
}

// benchmark is one run of all measurements.
type benchmark struct {
	options
	cluster    *cluster
	contenders *contenders
	report     *report
	// measured counts the measurements, to name the namespaces.
	measured int
}

// measure starts a control plane, runs all measurements and stops it. After an error it returns
// an incomplete report.
func measure(ctx context.Context, opts options) (outcome *report, err error) {
	b := &benchmark{options: opts, report: &report{facts: harness.DescribeMachine()}}
	harness.Say("Starting a control plane and building the manager")
	assets, err := findAssets(ctx)
	if err != nil {
		return nil, err
	}
	if b.cluster, err = startCluster(ctx, opts.Fsync); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.cluster.Stop()) }()
	if b.contenders, err = newContenders(ctx, b.cluster, assets); err != nil {
		return nil, err
	}
	b.report.facts = append(b.report.facts, b.DescribeServer(b.cluster.Version), fmt.Sprintf("rounds: %d", b.rounds))
	if err := b.measureIdle(ctx); err != nil {
		return nil, err
	}
	return b.report, b.measureAll(ctx)
}

// measureIdle measures the number of requests while idle.
func (b *benchmark) measureIdle(ctx context.Context) error {
	harness.Say("Counting the requests while idle")
	if err := b.cluster.waitForServers(ctx, 1); err != nil {
		return err
	}
	alone, err := b.countIdle(ctx)
	if err != nil {
		return err
	}
	fact := fmt.Sprintf("requests per second while idle: %.1f without a controller", alone)
	for _, side := range computeSides(0, b.peerOnly, b.oursOnly) {
		process, err := b.contenders.start(ctx, side)
		if err != nil {
			return err
		}
		rate, err := b.countIdle(ctx)
		if err := errors.Join(err, process.Stop()); err != nil {
			return err
		}
		fact += fmt.Sprintf(", %.1f with %s", rate, sideNames[side])
	}
	b.report.facts = append(b.report.facts, fact)
	return nil
}

func (b *benchmark) countIdle(ctx context.Context) (float64, error) {
	before, err := b.cluster.calm(ctx)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if err := harness.Sleep(ctx, b.idleFor); err != nil {
		return 0, err
	}
	after, err := harness.ScrapeRequests(ctx, b.cluster.scraper)
	return float64(after-before) / time.Since(start).Seconds(), err
}

func (b *benchmark) measureAll(ctx context.Context) error {
	for _, s := range b.selected {
		for _, servers := range b.servers {
			b.report.lines = append(b.report.lines, &line{scenario: s, servers: servers})
		}
	}
	for _, s := range computeOrder(b.selected) {
		if err := b.measureScenario(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s.title, err)
		}
	}
	return nil
}

// measureScenario prepares the environment of a scenario and measures it.
func (b *benchmark) measureScenario(ctx context.Context, s scenario) (err error) {
	harness.Say("Preparing: %s", s.title)
	if err := b.cluster.setCRDs(ctx, s.crds); err != nil {
		return err
	}
	if s.isCrowded {
		if err := b.cluster.setCrowd(ctx); err != nil {
			return err
		}
	}
	if s.isAggregated {
		if b.cluster.aggregated, err = b.cluster.startAggregated(ctx, s.discoveryDelay); err != nil {
			return err
		}
		defer func() {
			err = errors.Join(err, b.cluster.aggregated.stop(ctx))
			b.cluster.aggregated = nil
		}()
	}
	idle := makeNames("bench-idle", s.idleNamespaces)
	if err := b.cluster.createNamespaces(ctx, idle); err != nil {
		return fmt.Errorf("failed to create %d other namespaces: %w", len(idle), err)
	}
	for _, servers := range b.servers {
		if err := b.cluster.setServers(ctx, servers); err != nil {
			return err
		}
		if err := b.cluster.waitForServers(ctx, servers); err != nil {
			return err
		}
		if err := b.measureRounds(ctx, b.report.find(s.name, servers)); err != nil {
			return err
		}
	}
	return b.cluster.removeNamespaces(ctx, idle)
}

func (b *benchmark) measureRounds(ctx context.Context, l *line) error {
	for round := range b.rounds {
		for _, side := range computeSides(round, b.peerOnly, b.oursOnly) {
			harness.Say("%s, API servers: %d, round %d of %d, %s",
				l.scenario.title, l.servers, round+1, b.rounds, sideNames[side])
			measured, err := b.measureOnce(ctx, l.scenario, side)
			if err != nil {
				return fmt.Errorf("%s: %w", sideNames[side], err)
			}
			harness.Say("  %s, %d requests", formatTime(measured.removed), measured.requests)
			l.samples[side] = append(l.samples[side], measured)
		}
		if !l.scenario.hasBare() || b.peerOnly {
			continue
		}
		harness.Say("%s, API servers: %d, round %d of %d, bare client",
			l.scenario.title, l.servers, round+1, b.rounds)
		measured, err := b.measureBare(ctx, l)
		if err != nil {
			return fmt.Errorf("bare client: %w", err)
		}
		harness.Say("  %s", formatTime(measured.removed))
		l.bare = append(l.bare, measured)
	}
	return nil
}

// measureOnce creates the namespaces of a scenario and lets a controller finalize them.
func (b *benchmark) measureOnce(ctx context.Context, s scenario, side int) (result sample, err error) {
	b.measured++
	names, err := b.cluster.createFilled(ctx, fmt.Sprintf("bench-%d", b.measured), s.namespaces, s.content)
	if err != nil {
		return result, err
	}
	ahead, err := b.cluster.createFilled(ctx, fmt.Sprintf("bench-ahead-%d", b.measured), s.ahead, s.aheadContent)
	if err != nil {
		return result, err
	}
	process, err := b.contenders.start(ctx, side)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, process.Stop()) }()

	var nodeAgent *kubelet
	if s.content.pods > 0 {
		var pods []string
		for _, name := range names {
			for _, pod := range makeNames("object", s.content.pods) {
				pods = append(pods, name+"/"+pod)
			}
		}
		if nodeAgent, err = startKubelet(ctx, b.cluster.client, pods); err != nil {
			return result, err
		}
		defer nodeAgent.stop()
	}
	return b.measureRemoval(ctx, s, names, ahead, process, nodeAgent)
}

// measureRemoval deletes namespaces and waits for their removal.
func (b *benchmark) measureRemoval(
	ctx context.Context, s scenario, names, ahead []string, process *harness.Process, nodeAgent *kubelet,
) (result sample, err error) {
	before, err := b.cluster.calm(ctx)
	if err != nil {
		return result, err
	}
	sentBefore := b.cluster.meter.Read()
	costBefore, err := b.readCost(process)
	if err != nil {
		return result, err
	}
	expectedAhead := b.cluster.observer.expect(ahead)
	if s.isAggregated {
		b.cluster.aggregated.hang(ahead)
	}
	if err := b.cluster.deleteNamespaces(ctx, ahead); err != nil {
		return result, fmt.Errorf("failed to delete namespaces: %w", err)
	}
	if err := harness.Sleep(ctx, s.headStart); err != nil {
		return result, err
	}
	expected := b.cluster.observer.expect(names)
	start := time.Now()
	if err := b.deleteAndRelease(ctx, names, s.content.held); err != nil {
		return result, err
	}
	if err := waitUntilRemoved(ctx, expected, process, b.timeout); err != nil {
		if nodeAgent != nil {
			err = errors.Join(err, nodeAgent.err())
		}
		return result, err
	}
	if err := harness.Sleep(ctx, afterwards); err != nil {
		return result, err
	}
	if result, err = b.readCost(process); err != nil {
		return result, err
	}
	if s.isAggregated {
		b.cluster.aggregated.release()
	}
	for _, name := range ahead {
		if err := b.cluster.release(ctx, name, s.aheadContent.held); err != nil {
			return result, err
		}
	}
	if len(ahead) > 0 {
		if err := waitUntilRemoved(ctx, expectedAhead, process, b.timeout); err != nil {
			return result, err
		}
	}
	after, err := b.cluster.calm(ctx)
	if err != nil {
		return result, err
	}
	result.serverCPU -= costBefore.serverCPU
	result.controllerCPU -= costBefore.controllerCPU
	result.requests = after - before - (b.cluster.meter.Read() - sentBefore)
	result.removed = expected.Last().Sub(start)
	if nodeAgent != nil {
		if err := waitUntilRemoved(ctx, nodeAgent.Tracker, process, setUpTimeout); err != nil {
			return result, err
		}
		// The difference is negative if the watch of Pods delivers its last event later than the
		// other watch.
		result.afterPods = max(expected.Last().Sub(nodeAgent.Last()), 0)
	}
	return result, nil
}

// deleteAndRelease deletes namespaces and, after holdTime, removes the finalizers of their objects.
func (b *benchmark) deleteAndRelease(ctx context.Context, names []string, held int) error {
	group, groupContext := errgroup.WithContext(ctx)
	if held > 0 {
		group.Go(func() error {
			if err := harness.Sleep(groupContext, holdTime); err != nil {
				return err
			}
			for _, name := range names {
				if err := b.cluster.release(groupContext, name, held); err != nil {
					return err
				}
			}
			return nil
		})
	}
	group.Go(func() error {
		if err := b.cluster.deleteNamespaces(groupContext, names); err != nil {
			return fmt.Errorf("failed to delete namespaces: %w", err)
		}
		return nil
	})
	return group.Wait()
}

// readCost reads the resource usage of the processes so far.
func (b *benchmark) readCost(process *harness.Process) (sample, error) {
	var now sample
	var isServerKnown bool
	var err, serverErr, memoryErr error
	now.serverCPU, isServerKnown, serverErr = b.cluster.ServerCPU()
	now.controllerCPU, now.isCPUKnown, err = process.CPU()
	now.isCPUKnown = now.isCPUKnown && isServerKnown
	now.peakMemory, now.isMemoryKnown, memoryErr = process.PeakMemory()
	return now, errors.Join(err, serverErr, memoryErr)
}
