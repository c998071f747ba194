// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
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
	lines := bufio.NewScanner(metrics)
	// Help texts and bucket lists can be long.
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		name, tail, hasLabels := strings.Cut(line, "{")
		if !hasLabels || name != requestTotal && name != longRunning {
			continue
		}
		labels, value, err := parseSample(tail)
		if err != nil {
			return nil, fmt.Errorf("failed to parse %q: %w", line, err)
		}
		verb := labels[verbLabel]
		// Controllers do not send other long-running requests, such as CONNECT.
		if isOverhead(labels) || slices.Contains(except, labels["resource"]) || name == longRunning && verb != watchVerb {
			continue
		}
		switch {
		case labels["dry_run"] != "":
			verb = DryRun
		case verb == deleteVerb && labels["scope"] == "namespace":
			verb = deleteCollectionVerb // The API server uses the verb DELETE for both.
		}
		result[verb] += int64(value)
	}
	return result, lines.Err()
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

// parseSample parses the labels and the value of a sample: `a="b",c="d"} 12`.
func parseSample(text string) (map[string]string, float64, error) {
	labels := map[string]string{}
	for !strings.HasPrefix(text, "}") {
		name, tail, found := strings.Cut(text, "=")
		if !found {
			return nil, 0, fmt.Errorf("a label has no value in %q", text)
		}
		quoted, err := strconv.QuotedPrefix(tail)
		if err != nil {
			return nil, 0, fmt.Errorf("the value of label %s is not quoted in %q", name, tail)
		}
		if labels[name], err = strconv.Unquote(quoted); err != nil {
			return nil, 0, fmt.Errorf("failed to parse the value of label %s: %w", name, err)
		}
		text = strings.TrimPrefix(tail[len(quoted):], ",")
	}
	fields := strings.Fields(text[1:])
	if len(fields) == 0 {
		return nil, 0, fmt.Errorf("there is no value in %q", text)
	}
	value, err := strconv.ParseFloat(fields[0], 64)
	return labels, value, err
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
