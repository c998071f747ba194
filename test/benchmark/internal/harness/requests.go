// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"

	"k8s.io/client-go/rest"
)

// The metrics of kube-apiserver that the benchmark reads, and their verb label with its values.
const (
	requestTotal = "apiserver_request_total"
	longRunning  = "apiserver_longrunning_requests"
	verbLabel    = "verb"
	watchVerb    = "WATCH"
	deleteVerb   = "DELETE"
	// DryRun is the report's name for all dry runs, which change nothing.
	DryRun = "DRYRUN"
	// deleteCollectionVerb is the report's name for the deletion of all objects of a type.
	deleteCollectionVerb = "DELETECOLLECTION"
)

// Counts contains the numbers of requests by verb, as named by the API server.
type Counts map[string]int64

// Total returns the number of all requests.
func (c Counts) Total() int64 {
	var sum int64
	for _, count := range c {
		sum += count
	}
	return sum
}

// Minus returns the difference, without verbs whose difference is 0.
func (c Counts) Minus(other Counts) Counts {
	difference := Counts{}
	for verb, count := range c {
		difference[verb] = count
	}
	for verb, count := range other {
		difference[verb] -= count
	}
	for verb, count := range difference {
		if count == 0 {
			delete(difference, verb)
		}
	}
	return difference
}

// parseRequests returns the number of started requests from the output of /metrics. The API server
// counts a long-running request in a gauge while the request runs, and in the total after it has
// ended. Requests for the given resources are not counted.
func parseRequests(metrics io.Reader, except ...string) (Counts, error) {
	result := Counts{}
	err := ReadSamples(metrics, []string{requestTotal, longRunning},
		func(name string, labels map[string]string, value float64) {
			verb := labels[verbLabel]
			// Controllers do not send other long-running requests, such as CONNECT.
			if isOverhead(labels) || slices.Contains(except, labels["resource"]) || name == longRunning && verb != watchVerb {
				return
			}
			switch {
			case labels["dry_run"] != "":
				verb = DryRun
			case verb == deleteVerb && labels["scope"] == "namespace":
				verb = deleteCollectionVerb // The API server uses the verb DELETE for both.
			}
			result[verb] += int64(value)
		})
	if err != nil {
		return nil, err
	}
	return result, nil
}

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
func ScrapeRequests(ctx context.Context, client rest.Interface, except ...string) (Counts, error) {
	body, err := client.Get().AbsPath("/metrics").Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("failed to read the metrics of the API server: %w", err)
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
		if labels[verbLabel] == watchVerb {
			watches += int(value)
		}
	})
	return watches, err
}

// Meter counts the requests that the harness sends, so that they can be subtracted.
type Meter struct {
	lock sync.Mutex
	sent Counts
}

// NewMeter returns a meter that has counted nothing.
func NewMeter() *Meter { return &Meter{sent: Counts{}} }

// Wrap counts the requests that a client sends.
func (m *Meter) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		verb := computeVerb(request)
		m.lock.Lock()
		m.sent[verb]++
		m.lock.Unlock()
		return next.RoundTrip(request)
	})
}

// Read returns the requests that the harness has sent so far.
func (m *Meter) Read() Counts {
	m.lock.Lock()
	defer m.lock.Unlock()
	return Counts{}.Minus(Counts{}.Minus(m.sent))
}

// computeVerb returns the API server's verb for a request that a harness sends. Harnesses read single
// objects only outside measurements.
func computeVerb(request *http.Request) string {
	switch {
	case request.Method != http.MethodGet:
		return request.Method
	case request.URL.Query().Get("watch") != "":
		return watchVerb
	}
	return "LIST"
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
