// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package diagnoser diagnoses namespaces for the manager, within a budget of requests.
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
	// A diagnosis lists every resource type, so it makes a few hundred requests. One cause often
	// blocks many namespaces: the average rate of all diagnoses does not exceed this, and a burst
	// does not exceed the burst size and the requests of one diagnosis for each worker.
	requestsPerSecond = 100
	requestsBurst     = 1000
	// timeout is how long a diagnosis may take, so that a server that does not respond does
	// not block a worker.
	timeout = time.Minute
)

// Diagnoser diagnoses the namespaces of a cluster.
type Diagnoser struct{ collector *collect.Collector }

// New returns a Diagnoser whose requests count towards a budget.
func New(
	config *rest.Config, progressDeadline time.Duration, budget *Budget,
) (*Diagnoser, error) {
	config = rest.CopyConfig(config)
	config.Wrap(budget.count)
	collector, err := collect.New(config)
	if err != nil {
		return nil, fmt.Errorf("failed to create the collector of diagnosis facts: %w", err)
	}
	// The findings are published on the Namespace. The manager is not authorized to patch arbitrary
	// objects, and should not be.
	collector.ProgressDeadline, collector.IsPublic, collector.WithoutPatches = progressDeadline, true, true
	return &Diagnoser{collector: collector}, nil
}

// Diagnose diagnoses a namespace.
func (d *Diagnoser) Diagnose(ctx context.Context, name string) (*diagnosis.Diagnosis, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return d.collector.Diagnose(ctx, name)
}

// Budget limits the rate of requests of diagnoses. Requests are charged afterwards, since their
// number is not known in advance; a diagnosis that has started is not delayed.
type Budget struct {
	limiter *rate.Limiter
	pending atomic.Int64 // requests that are not charged yet
}

// NewBudget returns a full budget.
func NewBudget() *Budget {
	return &Budget{limiter: rate.NewLimiter(requestsPerSecond, requestsBurst)}
}

// count counts the requests of a transport.
func (b *Budget) count(transport http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		b.pending.Add(1)
		metrics.DiagnosisRequestsTotal.Inc()
		return transport.RoundTrip(request)
	})
}

// Wait charges the pending requests and returns how long the next diagnosis has to wait.
func (b *Budget) Wait(now time.Time) time.Duration {
	for pending := int(b.pending.Swap(0)); pending > 0; pending -= requestsBurst {
		b.limiter.ReserveN(now, min(pending, requestsBurst))
	}
	missing := 1 - b.limiter.TokensAt(now)
	return max(0, time.Duration(missing/requestsPerSecond*float64(time.Second)))
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
