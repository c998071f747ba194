// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// contender is a controller that creates the objects in each namespace.
type contender interface {
	// install prepares the cluster.
	install(ctx context.Context, c *cluster) error
	// start starts the processes of the controller.
	start(ctx context.Context, c *cluster) ([]*service, error)
	// apply creates or updates the template, with a limit of Pods in the quota.
	apply(ctx context.Context, c *cluster, pods int, mode v1alpha1.ReadinessMode) error
}

const (
	// warmUpCount is the number of namespaces in succession that a contender must handle before the
	// measurements, each within warmUpTimeout.
	warmUpCount   = 3
	warmUpTimeout = 5 * time.Second
)

// The contenders.
const (
	bareClient    = "bare"
	kyvernoPeer   = "kyverno"
	raisedKyverno = "kyverno-raised"
	ours          = "nslifecycle"
)

// contenderNames contains all contenders in the order of the report.
var contenderNames = []string{bareClient, kyvernoPeer, raisedKyverno, ours}

// contenderTitles are the names of the contenders in the report.
var contenderTitles = map[string]string{
	bareClient: "Bare client", kyvernoPeer: "Kyverno", raisedKyverno: "Kyverno, raised limits", ours: "nslifecycle",
}

func newContender(name string, opts options) contender {
	switch name {
	case bareClient:
		return &bare{}
	case kyvernoPeer:
		return &kyverno{dir: opts.kyverno}
	case raisedKyverno:
		return &kyverno{dir: opts.kyverno, flags: []string{
			"--clientRateLimitQPS=1000", "--clientRateLimitBurst=2000", "--genWorkers=32",
		}}
	default:
		return &operator{}
	}
}

// turn is a contender on its own control plane.
type turn struct {
	*cluster
	name      string
	contender contender
	services  []*service
	pods      int
}

// startTurn starts a control plane and the contender, and waits until it has created the objects in
// a few namespaces.
func startTurn(ctx context.Context, name string, opts options) (*turn, error) {
	c, err := startCluster(ctx, opts.fsync)
	if err != nil {
		return nil, err
	}
	t := &turn{cluster: c, name: name, contender: newContender(name, opts), pods: initialPods}
	if err := t.prepare(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("failed to start %s: %w%s", name, err, t.lastOutput()), t.stop())
	}
	return t, nil
}

func (t *turn) prepare(ctx context.Context) error {
	if err := t.contender.install(ctx, t.cluster); err != nil {
		return err
	}
	if err := t.restart(ctx); err != nil {
		return err
	}
	if err := t.contender.apply(ctx, t.cluster, t.pods, v1alpha1.ReadinessApplied); err != nil {
		return err
	}
	return t.warmUp(ctx)
}

// restart starts the processes of the contender.
func (t *turn) restart(ctx context.Context) error {
	var err error
	t.services, err = t.contender.start(ctx, t.cluster)
	return err
}

// warmUp creates namespaces until the contender handles a few in succession.
func (t *turn) warmUp(ctx context.Context) error {
	inARow := 0
	return poll(ctx, "the objects in a new namespace", func(ctx context.Context) (bool, error) {
		names := t.nextNames(1)
		if err := t.createNamespace(ctx, names[0]); err != nil {
			return false, err
		}
		objects := t.observer.track((*state).isOpen, names...)
		if err := t.observer.wait(ctx, objects, warmUpTimeout); err != nil {
			return false, err
		}
		inARow++
		if len(objects.met) == 0 {
			inARow = 0
		}
		return inARow == warmUpCount, nil
	})
}

// stopServices stops the processes of the contender.
func (t *turn) stopServices() error {
	var errs []error
	for _, s := range t.services {
		errs = append(errs, s.stop())
	}
	t.services = nil
	return errors.Join(errs...)
}

func (t *turn) stop() error { return errors.Join(t.stopServices(), t.cluster.stop()) }

func (t *turn) lastOutput() string {
	var out string
	for _, s := range t.services {
		out += "; last output: " + s.lastOutput()
	}
	return out
}

// usage returns the sum of the processes.
func (t *turn) usage() (usage, error) {
	var sum usage
	for _, s := range t.services {
		one, err := s.usage()
		if err != nil {
			return usage{}, err
		}
		sum.cpu, sum.memory, sum.restarts = sum.cpu+one.cpu, sum.memory+one.memory, sum.restarts+one.restarts
	}
	return sum, nil
}
