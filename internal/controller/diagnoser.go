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
	diagnosiscollect "github.com/nslifecycle/nslifecycle/internal/diagnosis/collect"
	"github.com/nslifecycle/nslifecycle/internal/metrics"
)

const (
	// A diagnosis lists every resource type, so it makes some hundred requests. One cause often blocks
	// many namespaces: the average rate of all diagnoses does not exceed this, and a burst does not
	// exceed the burst size and the requests of one diagnosis for each worker.
	diagnosisRequestsPerSecond = 100
	diagnosisRequestsBurst     = 1000
	// diagnosisTimeout is how long a diagnosis may take, so that a server that does not respond does
	// not block a worker.
	diagnosisTimeout = time.Minute
)

// ClusterDiagnoser is the Diagnoser of a cluster.
type ClusterDiagnoser struct{ collector *diagnosiscollect.Collector }

// NewClusterDiagnoser returns a Diagnoser whose requests count towards a budget.
func NewClusterDiagnoser(
	config *rest.Config, progressDeadline time.Duration, budget *RequestBudget,
) (*ClusterDiagnoser, error) {
	config = rest.CopyConfig(config)
	config.Wrap(budget.count)
	collector, err := diagnosiscollect.New(config)
	if err != nil {
		return nil, fmt.Errorf("failed to create the collector of diagnosis facts: %w", err)
	}
	// The findings are published on the Namespace. The manager is not authorized to patch arbitrary
	// objects, and should not be.
	collector.ProgressDeadline, collector.IsPublic, collector.WithoutPatches = progressDeadline, true, true
	return &ClusterDiagnoser{collector: collector}, nil
}

// Diagnose implements Diagnoser.
func (d *ClusterDiagnoser) Diagnose(ctx context.Context, name string) (*diagnosis.Diagnosis, error) {
	ctx, cancel := context.WithTimeout(ctx, diagnosisTimeout)
	defer cancel()
	return d.collector.Diagnose(ctx, name)
}

// RequestBudget limits the rate of requests of diagnoses. Requests are charged afterwards, since
// their number is not known before; a diagnosis that has started is not delayed.
type RequestBudget struct {
	limiter *rate.Limiter
	pending atomic.Int64 // requests that are not charged yet
}

// NewRequestBudget returns a full RequestBudget.
func NewRequestBudget() *RequestBudget {
	return &RequestBudget{limiter: rate.NewLimiter(diagnosisRequestsPerSecond, diagnosisRequestsBurst)}
}

// count counts the requests of a transport.
func (b *RequestBudget) count(transport http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		b.pending.Add(1)
		metrics.DiagnosisRequestsTotal.Inc()
		return transport.RoundTrip(request)
	})
}

// wait charges the pending requests and returns how long the next diagnosis has to wait.
func (b *RequestBudget) wait(now time.Time) time.Duration {
	for pending := int(b.pending.Swap(0)); pending > 0; pending -= diagnosisRequestsBurst {
		b.limiter.ReserveN(now, min(pending, diagnosisRequestsBurst))
	}
	missing := 1 - b.limiter.TokensAt(now)
	return max(0, time.Duration(missing/diagnosisRequestsPerSecond*float64(time.Second)))
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
