// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package diagnoser diagnoses namespaces for the manager and limits the rate of requests.
package diagnoser

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/rest"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/collect"
	"github.com/nslifecycle/nslifecycle/internal/metrics"
)

const (
	// A diagnosis lists all resource types, so it sends a few hundred requests, and one cause often
	// blocks many namespaces. requestsPerSecond is the maximum average rate of all diagnoses. A burst
	// does not exceed requestsBurst plus the requests of one diagnosis per worker.
	requestsPerSecond = 100
	requestsBurst     = 1000
	// timeout limits the duration of a diagnosis, so that an unresponsive server does not block a
	// worker.
	timeout = time.Minute
)

// Diagnoser diagnoses the namespaces of a cluster.
type Diagnoser struct{ collector *collect.Collector }

// New returns a Diagnoser whose requests count against a budget.
func New(config *rest.Config, progressDeadline time.Duration, budget *Budget) (*Diagnoser, error) {
	config = rest.CopyConfig(config)
	config.Wrap(budget.count)
	collector, err := collect.New(config)
	if err != nil {
		return nil, fmt.Errorf("failed to create the collector for diagnoses: %w", err)
	}
	// The findings are published on the Namespace. The manager must not have permission to patch
	// arbitrary objects.
	collector.ProgressDeadline, collector.IsPublic, collector.WithoutPatches = progressDeadline, true, true
	return &Diagnoser{collector: collector}, nil
}

// Diagnose diagnoses a namespace.
func (d *Diagnoser) Diagnose(ctx context.Context, name string) (*diagnosis.Diagnosis, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return d.collector.Diagnose(ctx, name)
}

// Budget limits the rate of requests for diagnoses. Requests are deducted from the budget after
// they are sent, because their number is not known in advance. A diagnosis in progress is not
// delayed.
type Budget struct {
	limiter *rate.Limiter
	pending atomic.Int64 // requests that have not been deducted yet
}

// NewBudget returns a full budget.
func NewBudget() *Budget {
	return &Budget{limiter: rate.NewLimiter(requestsPerSecond, requestsBurst)}
}

// count counts the requests that a transport sends.
func (b *Budget) count(transport http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		b.pending.Add(1)
		metrics.DiagnosisRequestsTotal.Inc()
		return transport.RoundTrip(request)
	})
}

// Wait deducts the pending requests and returns how long to wait before the next diagnosis.
func (b *Budget) Wait(now time.Time) time.Duration {
	for pending := int(b.pending.Swap(0)); pending > 0; pending -= requestsBurst {
		b.limiter.ReserveN(now, min(pending, requestsBurst))
	}
	missing := 1 - b.limiter.TokensAt(now)
	return max(0, time.Duration(missing/requestsPerSecond*float64(time.Second)))
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
