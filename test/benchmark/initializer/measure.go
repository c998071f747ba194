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

// The goals: the time that each initializer adds, and the ratio of the medians of pkg/initializer and of
// the bare client.
const (
	goalEach = 15 * time.Millisecond
	goalBare = 2
)

const (
	// warmUp is the number of namespaces that are initialized before the measurement.
	warmUp = 5
	// settling is the time for which initializers run before the measurement. pkg/initializer reads
	// namespaces twice if they are created within a few seconds after its start.
	settling = 7 * time.Second
	// chainAtOnce is the length of the chain for namespaces that are created concurrently.
	chainAtOnce = 3
)

// lengths are the measured lengths of chains.
var lengths = []int{1, 2, 4, 8}

var ways = []way{{withLibrary, false}, {withClientGo, false}, {withLibrary, true}, {withClientGo, true}}

// samples contains the durations for one way and length.
type samples struct{ writable, ready []time.Duration }

// outcome is the result of a run.
type outcome struct {
	facts  []string
	atOnce int
	chains map[way]map[int]*samples
	crowds map[way][]time.Duration
	// cpu is the processor time of the initializers for all namespaces that are created
	// concurrently.
	cpu map[way][]time.Duration
	// bare contains the durations with the bare client.
	bare []time.Duration
}

func namesOf(length int) []string {
	names := make([]string, length)
	for i := range names {
		names[i] = fmt.Sprintf("number-%d.bench.example.com", i+1)
	}
	return names
}

func measure(ctx context.Context, opts options) (result *outcome, err error) {
	result = &outcome{
		facts: harness.DescribeMachine(), atOnce: opts.atOnce,
		chains: map[way]map[int]*samples{}, crowds: map[way][]time.Duration{}, cpu: map[way][]time.Duration{},
	}
	harness.Say("Starting a control plane and the manager")
	c, err := startCluster(ctx, opts.fsync)
	if err != nil {
		return nil, err
	}
	if !opts.quick {
		c.settling = settling
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	etcd := "etcd runs without fsync"
	if opts.fsync {
		etcd = "etcd runs with fsync"
	}
	result.facts = append(result.facts, fmt.Sprintf("Kubernetes %s, %s", c.version, etcd))
	for round := range opts.rounds {
		for _, length := range lengths {
			harness.Say("Round %d of %d: a chain of %d", round+1, opts.rounds, length)
			if err := c.register(ctx, namesOf(length)); err != nil {
				return nil, err
			}
			for i := range ways {
				if err := result.measureChain(ctx, c, ways[(i+round)%len(ways)], length, opts.namespaces); err != nil {
					return nil, err
				}
			}
		}
		harness.Say("Round %d of %d: %d namespaces at once", round+1, opts.rounds, opts.atOnce)
		if err := c.register(ctx, namesOf(chainAtOnce)); err != nil {
			return nil, err
		}
		if err := result.measureBare(ctx, c, opts.clients); err != nil {
			return nil, err
		}
		for i := range ways {
			if err := result.measureCrowd(ctx, c, ways[(i+round)%len(ways)], opts.clients); err != nil {
				return nil, err
			}
		}
	}
	return result, nil
}

// with starts a chain and its observer, and calls do after the warm-up.
func (c *cluster) with(ctx context.Context, w way, length int, do func(*observer, chain) error) (err error) {
	serving, err := c.serve(ctx, w, namesOf(length))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, serving.stop()) }()
	settled := time.After(c.settling)
	o, err := c.observe(ctx)
	if err != nil {
		return err
	}
	defer o.stop()
	if _, err := o.oneByOne(ctx, warmUp); err != nil {
		return err
	}
	select {
	case <-settled:
	case <-ctx.Done():
		return ctx.Err()
	}
	return do(o, serving)
}

func (r *outcome) measureChain(ctx context.Context, c *cluster, w way, length, count int) error {
	return c.with(ctx, w, length, func(o *observer, _ chain) error {
		namespaces, err := o.oneByOne(ctx, count)
		if err != nil {
			return err
		}
		if r.chains[w] == nil {
			r.chains[w] = map[int]*samples{}
		}
		if r.chains[w][length] == nil {
			r.chains[w][length] = &samples{}
		}
		taken := r.chains[w][length]
		for _, timing := range namespaces {
			taken.writable = append(taken.writable, timing.writable.Sub(timing.requested))
			taken.ready = append(taken.ready, timing.ready.Sub(timing.requested))
		}
		return nil
	})
}

func (r *outcome) measureCrowd(ctx context.Context, c *cluster, w way, clients int) error {
	return c.with(ctx, w, chainAtOnce, func(o *observer, serving chain) error {
		before, err := serving.cpu()
		if err != nil {
			return err
		}
		took, err := o.atOnce(ctx, r.atOnce, clients)
		if err != nil {
			return err
		}
		after, err := serving.cpu()
		if err != nil {
			return err
		}
		r.crowds[w] = append(r.crowds[w], took)
		r.cpu[w] = append(r.cpu[w], after-before)
		return nil
	})
}
