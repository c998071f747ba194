// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"

	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

// measureBare measures a client that finalizes empty namespaces with only the requests that no
// namespace controller can avoid: when the grace period of the last namespace has ended, one list of
// each type, and then one request to /finalize for each namespace.
func (b *benchmark) measureBare(ctx context.Context, l *line) (result sample, err error) {
	b.measured++
	names := makeNames(fmt.Sprintf("bench-%d", b.measured), l.scenario.namespaces)
	if err := b.cluster.createNamespaces(ctx, names); err != nil {
		return result, fmt.Errorf("failed to create namespaces: %w", err)
	}
	types, content, err := b.cluster.discover(ctx)
	if err != nil {
		return result, err
	}
	if _, err := b.cluster.calm(ctx); err != nil {
		return result, err
	}
	before, _, err := b.cluster.ServerCPU()
	if err != nil {
		return result, err
	}
	expected := b.cluster.observer.expect(names)
	start := time.Now()
	if err := b.cluster.deleteNamespaces(ctx, names); err != nil {
		return result, err
	}
	if err := harness.Sleep(ctx, gracePeriod(l.servers)); err != nil {
		return result, err
	}
	if err := harness.InParallel(ctx, len(types), func(ctx context.Context, i int) error {
		_, err := content.Resource(types[i]).List(ctx, metav1.ListOptions{Limit: 1})
		return err
	}); err != nil {
		return result, err
	}
	if err := b.cluster.finalizeNamespaces(ctx, names); err != nil {
		return result, err
	}
	select {
	case <-expected.Done():
	case <-time.After(setUpTimeout):
		return result, fmt.Errorf("%d namespaces remain after %s", expected.Remaining(), setUpTimeout)
	case <-ctx.Done():
		return result, ctx.Err()
	}
	result.removed = expected.Last().Sub(start)
	result.requests = int64(len(types) + len(names))
	after, ok, err := b.cluster.ServerCPU()
	result.serverCPU, result.isCPUKnown = after-before, ok
	return result, err
}

// discover returns the types that can be listed, and a client for them.
func (c *cluster) discover(ctx context.Context) ([]schema.GroupVersionResource, metadata.Interface, error) {
	config := controlplane.Unlimited(c.Admin)
	discoverer, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("failed to create a discovery client: %w", err)
	}
	discovered, err := resourcetypes.Discover(ctx, discoverer)
	if err != nil {
		return nil, nil, err
	}
	var types []schema.GroupVersionResource
	for _, resourceType := range discovered.Types {
		if resourceType.Can("list") {
			types = append(types, resourceType.GroupVersionResource)
		}
	}
	content, err := metadata.NewForConfig(config)
	return types, content, err
}

// hasBare reports whether a bare client can finalize the namespaces of a scenario.
func (s scenario) hasBare() bool { return s.content == content{} && s.ahead == 0 }

func (l *line) bareTimes() []time.Duration {
	return collect(l.bare, func(s sample) time.Duration { return s.removed })
}

// bareRatio returns nslifecycle's median time divided by that of the bare client.
func (l *line) bareRatio() float64 {
	if len(l.bare) == 0 || len(l.samples[ours]) == 0 {
		return math.NaN()
	}
	return l.medianTime(ours).Seconds() / harness.Median(l.bareTimes()).Seconds()
}

func (r *report) bareTable() harness.Table {
	table := harness.Table{
		Title: "Time to removal with a bare client",
		Header: []string{
			"Case", "API servers", "Bare client, median", "Worst", "Requests", "Ours / bare client",
			"API server with the bare client",
		},
		Note: "The bare client sends one list of each type after the grace period of the last namespace, and one " +
			"request to /finalize for each namespace.",
	}
	for _, l := range r.lines {
		if len(l.bare) == 0 {
			continue
		}
		processors := nothing
		if l.bare[0].isCPUKnown {
			processors = formatTime(harness.Median(collect(l.bare, func(s sample) time.Duration { return s.serverCPU })))
		}
		table.Rows = append(table.Rows, []string{
			l.scenario.title, strconv.Itoa(l.servers), formatTime(harness.Median(l.bareTimes())),
			formatTime(slices.Max(l.bareTimes())), formatCount(l.bare[0].requests),
			formatRatio(l.bareRatio()), processors,
		})
	}
	return table
}
