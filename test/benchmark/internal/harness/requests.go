// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync/atomic"

	"k8s.io/client-go/rest"
)

// The metrics of kube-apiserver that the benchmark reads.
const (
	requestTotal = "apiserver_request_total"
	longRunning  = "apiserver_longrunning_requests"
)

// parseRequests returns the number of started requests from the output of /metrics. The API server
// counts a long-running request in a gauge while the request runs, and in the total after it has
// ended. Requests for the given resources are not counted.
func parseRequests(metrics io.Reader, except ...string) (int64, error) {
	var sum int64
	err := ReadSamples(metrics, []string{requestTotal, longRunning},
		func(name string, labels map[string]string, value float64) {
			// Controllers do not send other long-running requests, such as CONNECT.
			isOther := name == longRunning && !isWatch(labels)
			if !isOther && !isOverhead(labels) && !slices.Contains(except, labels["resource"]) {
				sum += int64(value)
			}
		})
	return sum, err
}

func isWatch(labels map[string]string) bool { return labels["verb"] == "WATCH" }

// isOverhead reports whether requests are for endpoints such as /metrics and /readyz, which
// controllers do not use.
func isOverhead(labels map[string]string) bool {
	switch labels["subresource"] {
	case "/metrics", "/healthz", "/livez", "/readyz":
		return true
	}
	return false
}

// ScrapeRequests returns the number of requests that the API server has served, except those for the
// given resources.
func ScrapeRequests(ctx context.Context, client rest.Interface, except ...string) (int64, error) {
	body, err := client.Get().AbsPath("/metrics").Stream(ctx)
	if err != nil {
		return 0, fmt.Errorf("failed to read the metrics of the API server: %w", err)
	}
	defer body.Close()
	return parseRequests(body, except...)
}

// ScrapeWatches returns the number of watches that the API server serves now.
func ScrapeWatches(ctx context.Context, client rest.Interface) (int, error) {
	body, err := client.Get().AbsPath("/metrics").Stream(ctx)
	if err != nil {
		return 0, fmt.Errorf("failed to read the metrics of the API server: %w", err)
	}
	defer body.Close()
	watches := 0
	err = ReadSamples(body, []string{longRunning}, func(_ string, labels map[string]string, value float64) {
		if isWatch(labels) {
			watches += int(value)
		}
	})
	return watches, err
}

// Meter counts the requests that the harness sends, so that they can be subtracted.
type Meter struct{ sent atomic.Int64 }

// Wrap counts the requests that a client sends.
func (m *Meter) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		m.sent.Add(1)
		return next.RoundTrip(request)
	})
}

// Read returns the number of requests that the harness has sent so far.
func (m *Meter) Read() int64 { return m.sent.Load() }

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
