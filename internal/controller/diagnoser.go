// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/rest"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/metrics"
)

const (
	// A diagnosis asks for every type that is served, so it makes some hundred requests. What
	// keeps one namespace from its end often keeps many others: in the long run all
	// diagnoses together make no more requests a second than this, and at once no more than
	// the burst and those of one diagnosis for each worker.
	diagnosisRequestsPerSecond = 100
	diagnosisRequestsBurst     = 1000
	// diagnosisTimeout is how long a diagnosis may take: a server that does not answer must
	// not keep a worker from all other namespaces.
	diagnosisTimeout = time.Minute
)

// ClusterDiagnoser reads facts from the cluster and computes what follows from them.
type ClusterDiagnoser struct{ gatherer *diagnosis.Gatherer }

// NewClusterDiagnoser returns a Diagnoser whose requests count in a budget.
func NewClusterDiagnoser(
	config *rest.Config, patience time.Duration, budget *RequestBudget,
) (*ClusterDiagnoser, error) {
	config = rest.CopyConfig(config)
	config.Wrap(budget.count)
	gatherer, err := diagnosis.NewGatherer(config)
	if err != nil {
		return nil, fmt.Errorf("failed to create the gatherer of diagnosis facts: %w", err)
	}
	// The findings are published on the Namespace. The manager is not authorized to patch arbitrary
	// objects, and should not be.
	gatherer.Patience, gatherer.IsPublic, gatherer.IsWithoutPatches = patience, true, true
	return &ClusterDiagnoser{gatherer: gatherer}, nil
}

// Diagnose implements Diagnoser.
func (d *ClusterDiagnoser) Diagnose(ctx context.Context, name string) (*diagnosis.Diagnosis, error) {
	ctx, cancel := context.WithTimeout(ctx, diagnosisTimeout)
	defer cancel()
	return d.gatherer.Diagnose(ctx, name)
}

// RequestBudget bounds the rate of requests of diagnoses. They are paid for afterwards,
// since nobody knows before how many one makes; one that has begun is never held up.
type RequestBudget struct {
	limiter *rate.Limiter
	unpaid  atomic.Int64
}

// NewRequestBudget returns the budget for the manager.
func NewRequestBudget() *RequestBudget {
	return &RequestBudget{limiter: rate.NewLimiter(diagnosisRequestsPerSecond, diagnosisRequestsBurst)}
}

// count counts the requests that go through a transport.
func (b *RequestBudget) count(transport http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		b.unpaid.Add(1)
		metrics.DiagnosisRequestsTotal.Inc()
		return transport.RoundTrip(request)
	})
}

// wait pays for the requests so far and returns how long the next diagnosis has to wait; 0
// if it does not.
func (b *RequestBudget) wait(now time.Time) time.Duration {
	if b == nil {
		return 0
	}
	for unpaid := int(b.unpaid.Swap(0)); unpaid > 0; unpaid -= diagnosisRequestsBurst {
		b.limiter.ReserveN(now, min(unpaid, diagnosisRequestsBurst))
	}
	missing := 1 - b.limiter.TokensAt(now)
	return max(0, time.Duration(missing/diagnosisRequestsPerSecond*float64(time.Second)))
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
