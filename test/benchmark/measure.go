// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

// The goals.
const (
	goalCreation = 1.15
	goalWrite    = 1.05
)

// benchmark is one run of all measurements.
type benchmark struct {
	options
	servers [2]*server
	manager *harness.Process
	// admission serves the webhooks of the server with nslifecycle, and applies missing policies.
	admission *controlplane.Manager
	report    report
}

// measure starts the control planes, measures everything and stops them.
func measure(ctx context.Context, opts options) (outcome *report, err error) {
	b := &benchmark{options: opts}
	b.report.facts = append(b.report.facts, harness.DescribeMachine()...)
	harness.Say("Starting two control planes")
	if err := b.start(ctx); err != nil {
		return nil, errors.Join(err, b.stop())
	}
	defer func() { err = errors.Join(err, b.stop()) }()
	b.report.facts = append(b.report.facts, b.DescribeServer(b.servers[without].Version))

	for _, phase := range []func(context.Context) error{
		b.compareBare, b.install, b.compareWorking, b.compareInstalled, b.compareEachPolicy, b.compareDeregistered,
	} {
		if err := phase(ctx); err != nil {
			return nil, err
		}
	}
	return &b.report, nil
}

func (b *benchmark) start(ctx context.Context) error {
	var errs [2]error
	var starting sync.WaitGroup
	for i := range b.servers {
		starting.Go(func() {
			b.servers[i], errs[i] = startServer(ctx, b.Fsync)
		})
	}
	starting.Wait()
	return errors.Join(errs[:]...)
}

func (b *benchmark) stop() error {
	err := b.manager.Stop()
	for _, server := range b.servers {
		if server != nil {
			err = errors.Join(err, server.Stop())
		}
	}
	return err
}

// compareBare is the control measurement: it compares the servers before nslifecycle is installed.
func (b *benchmark) compareBare(ctx context.Context) error {
	const control = "Control, before the installation: "
	if err := b.compareCreation(ctx, control+"Namespace create", 0); err != nil {
		return err
	}
	return b.compareWrites(ctx, control, 0)
}

// install installs nslifecycle on one server and registers the initializers.
func (b *benchmark) install(ctx context.Context) error {
	harness.Say("Installing nslifecycle on one control plane and registering three initializers (can take 30 s)")
	server := b.servers[with]
	if _, err := server.Kubectl(ctx, server.Admin, "apply", "-k", b.kustomization); err != nil {
		return err
	}
	var err error
	if b.admission, err = server.StartAdmission(ctx); err != nil {
		return err
	}
	if b.manager, err = server.StartManager(ctx); err != nil {
		return err
	}
	if err := server.register(ctx); err != nil {
		return fmt.Errorf("%w; last output of the manager: %s", err, b.manager.LastOutput())
	}
	return server.waitForInjected(ctx, strings.Join(initializerNames(), ","))
}

// compareWorking compares the creation of namespaces while the manager is initializing them.
func (b *benchmark) compareWorking(ctx context.Context) error {
	return b.compareCreation(ctx, "Namespace create, three initializers, manager running", 0)
}

// compareInstalled compares requests while three initializers are registered and the manager is
// stopped.
func (b *benchmark) compareInstalled(ctx context.Context) error {
	if err := b.manager.Stop(); err != nil {
		return err
	}
	if err := b.compareCreation(ctx, "Namespace create, three initializers", goalCreation); err != nil {
		return err
	}
	if err := b.compareUpdates(ctx, "Namespace update"); err != nil {
		return err
	}
	return b.compareWrites(ctx, "", goalWrite)
}

// compareEachPolicy measures the cost without the policies, with the least mutating policy, and with inject alone.
func (b *benchmark) compareEachPolicy(ctx context.Context) error {
	if !b.eachPolicy {
		return nil
	}
	bindings, err := b.servers[with].findBindings(ctx)
	if err != nil {
		return err
	}
	if err := b.admission.Stop(); err != nil {
		return err
	}
	if err := bindings.keepOnly(ctx); err != nil {
		return err
	}
	if err := b.compareCreation(ctx, "Namespace create, without the policies", 0); err != nil {
		return err
	}
	removePolicy, err := b.servers[with].installLeastPolicy(ctx)
	if err != nil {
		return err
	}
	err = b.compareCreation(ctx, "Namespace create, only a policy that adds a constant label", 0)
	if err := errors.Join(err, removePolicy(ctx)); err != nil {
		return err
	}
	if err := bindings.keepOnly(ctx, internalv1alpha1.PolicyInject); err != nil {
		return err
	}
	err = b.compareCreation(ctx, "Namespace create, only the policy inject", 0)
	return errors.Join(err, bindings.keepOnly(ctx, slices.Collect(maps.Keys(bindings.byLabel))...))
}

// compareDeregistered compares requests while the policies are installed but no initializers are
// registered.
func (b *benchmark) compareDeregistered(ctx context.Context) error {
	if err := b.servers[with].deregister(ctx); err != nil {
		return err
	}
	return b.compareCreation(ctx, "Namespace create, no initializers registered", goalCreation)
}

func (b *benchmark) compareCreation(ctx context.Context, what string, goal float64) error {
	err := b.compare(ctx, what, b.namespaces, goal, [2]request{
		b.servers[without].createNamespace(), b.servers[with].createNamespace(),
	})
	return errors.Join(err, b.removeNamespaces(ctx))
}

// compareUpdates compares updates of a namespace that is not initializing.
func (b *benchmark) compareUpdates(ctx context.Context, what string) error {
	return b.compare(ctx, what, b.namespaces, 0, [2]request{
		b.servers[without].updateNamespace(), b.servers[with].updateNamespace(),
	})
}

// compareWrites compares writes to a namespace that is not initializing.
func (b *benchmark) compareWrites(ctx context.Context, control string, goal float64) error {
	if err := b.compare(ctx, control+"ConfigMap create", b.writes, goal, [2]request{
		b.servers[without].createConfigMap(), b.servers[with].createConfigMap(),
	}); err != nil {
		return err
	}
	if err := b.compare(ctx, control+"ConfigMap update", b.writes, goal, [2]request{
		b.servers[without].updateConfigMap(), b.servers[with].updateConfigMap(),
	}); err != nil {
		return err
	}
	return b.compare(ctx, control+"ConfigMap create and delete", b.writes, goal, [2]request{
		b.servers[without].createAndDeleteConfigMap(), b.servers[with].createAndDeleteConfigMap(),
	})
}

func (b *benchmark) compare(ctx context.Context, what string, samples int, goal float64, requests [2]request) error {
	harness.Say("%s: %d requests each", what, samples)
	result, err := compare(ctx, (samples+perRound-1)/perRound, requests)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	b.report.ratios = append(b.report.ratios, newRatioLine(what, result, goal))
	return nil
}

// removeNamespaces removes the measured namespaces from both servers.
func (b *benchmark) removeNamespaces(ctx context.Context) error {
	var errs [2]error
	var removing sync.WaitGroup
	for i, server := range b.servers {
		removing.Go(func() { errs[i] = server.removeNamespaces(ctx) })
	}
	removing.Wait()
	return errors.Join(errs[:]...)
}
