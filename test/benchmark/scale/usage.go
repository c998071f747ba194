// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
)

// The metrics of the manager that the benchmark reads.
const (
	residentMemory = "process_resident_memory_bytes"
	liveHeap       = "go_gc_heap_live_bytes"
	goroutines     = "go_goroutines"
	requestsTotal  = "rest_client_requests_total"
)

// usage is what the processes have used so far.
type usage struct {
	at              time.Time
	server, manager time.Duration
	requests        float64
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
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("failed to read the metrics of the manager: %w", err)
	}
	defer response.Body.Close()
	names := []string{residentMemory, liveHeap, goroutines, requestsTotal}
	result := gauges{}
	if err := harness.ReadSamples(response.Body, names, func(name string, _ map[string]string, value float64) {
		result[name] += value
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
	if c.serverPID != 0 {
		server, _, err = harness.ReadCPU(c.serverPID)
	}
	manager, _, managerErr := c.manager.CPU()
	return server, manager, errors.Join(err, managerErr)
}

func (c *cluster) readUsage(ctx context.Context) (usage, error) {
	values, err := c.readManager(ctx)
	if err != nil {
		return usage{}, err
	}
	u := usage{at: time.Now(), requests: values[requestsTotal]}
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
