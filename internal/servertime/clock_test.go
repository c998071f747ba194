// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package servertime

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	testclock "k8s.io/utils/clock/testing"
)

// roundTrip implements http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// server is an API server with its own clock.
type server struct {
	local *testclock.FakePassiveClock
	skew  time.Duration
	// before and after are the durations between the request, the date and the response.
	before, after time.Duration
	hasNoDate     bool
}

func (s *server) pass(d time.Duration) { s.local.SetTime(s.local.Now().Add(d)) }

func (s *server) time() time.Time { return s.local.Now().Add(s.skew) }

func (s *server) RoundTrip(*http.Request) (*http.Response, error) {
	s.pass(s.before)
	response := &http.Response{Header: http.Header{}, Body: io.NopCloser(strings.NewReader(""))}
	if !s.hasNoDate {
		response.Header.Set("Date", s.time().UTC().Format(http.TimeFormat))
	}
	s.pass(s.after)
	return response, nil
}

func TestClock(t *testing.T) {
	type response struct {
		path  string
		after time.Duration
		// skew is the difference between the API server's clock and the local one.
		skew                 time.Duration
		toServer, fromServer time.Duration
		hasNoDate            bool
	}
	const core, other = "/api/v1/namespaces", "/apis/example.com/v1/things"
	tests := map[string]struct {
		responses []response
		// want is the difference between the clock and the API server's clock. fraction is the start.
		fraction time.Duration
		want     time.Duration
		// wantLocal reports whether the clock must be the local clock.
		wantLocal bool
	}{
		"no response":       {wantLocal: true},
		"no date":           {responses: []response{{path: core, skew: time.Hour, hasNoDate: true}}, wantLocal: true},
		"an aggregated API": {responses: []response{{path: other, skew: time.Hour}}, wantLocal: true},
		"an admission policy": {
			responses: []response{{path: "/apis/admissionregistration.k8s.io/v1", skew: time.Hour}},
			fraction:  300 * time.Millisecond, want: -300 * time.Millisecond,
		},
		"equal clocks":    {responses: []response{{path: core}}, fraction: 300 * time.Millisecond, wantLocal: true},
		"a slow response": {responses: []response{{path: core, fromServer: 20 * time.Second}}, wantLocal: true},
		"a slow request":  {responses: []response{{path: core, toServer: 20 * time.Second}}, wantLocal: true},
		"the local clock is slow": {
			responses: []response{{path: core, skew: time.Hour}}, fraction: 300 * time.Millisecond, want: -300 * time.Millisecond,
		},
		"the local clock is fast": {
			responses: []response{{path: core, skew: -time.Hour}}, fraction: 300 * time.Millisecond, want: 700 * time.Millisecond,
		},
		"the best of several responses to a slow clock": {
			responses: []response{
				{path: core, skew: time.Hour, fromServer: 5 * time.Second},
				{path: core, skew: time.Hour, after: 600 * time.Millisecond}, // at .9 s
				{path: core, skew: time.Hour, after: 150 * time.Millisecond}, // at .05 s
				{path: core, skew: time.Hour, after: 400 * time.Millisecond, fromServer: time.Minute},
			},
			fraction: 300 * time.Millisecond, want: -50 * time.Millisecond,
		},
		"the best of several responses to a fast clock": {
			responses: []response{
				{path: core, skew: -time.Hour, toServer: 5 * time.Second},
				{path: core, skew: -time.Hour, after: 600 * time.Millisecond}, // at .9 s
				{path: core, skew: -time.Hour, after: 150 * time.Millisecond}, // at .05 s
			},
			fraction: 300 * time.Millisecond, want: 100 * time.Millisecond,
		},
		"the API server's clock is set back": {
			responses: []response{{path: core, skew: time.Hour}, {path: core}}, wantLocal: true,
		},
		"the API server's clock is set forward": {responses: []response{{path: core}, {path: core, skew: time.Hour}}},
		"time passes": {
			responses: []response{{path: core, skew: time.Hour}, {path: other, skew: time.Hour, after: 24 * time.Hour}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			start := time.Date(2026, time.March, 1, 12, 0, 0, int(test.fraction), time.UTC)
			s := &server{local: testclock.NewFakePassiveClock(start)}
			clock := NewClock(s.local)
			for _, r := range test.responses {
				s.pass(r.after)
				s.skew, s.before, s.after, s.hasNoDate = r.skew, r.toServer, r.fromServer, r.hasNoDate
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.example.com"+r.path, nil)
				g.Expect(err).NotTo(HaveOccurred())
				answer, err := clock.Wrap(s).RoundTrip(request)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(answer.Body.Close()).To(Succeed())
			}
			if test.wantLocal {
				g.Expect(clock.Now()).To(Equal(s.local.Now()))
				return
			}
			g.Expect(clock.Now().Sub(s.time())).To(Equal(test.want))
			g.Expect(clock.Since(s.time())).To(Equal(test.want))
		})
	}
}

func TestClockIgnoresErrors(t *testing.T) {
	g := NewWithT(t)
	local := testclock.NewFakePassiveClock(time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC))
	clock := NewClock(local)
	transport := clock.Wrap(roundTrip(func(*http.Request) (*http.Response, error) { return nil, http.ErrHandlerTimeout }))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.example.com/api/v1/namespaces", nil)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = transport.RoundTrip(request) //nolint:bodyclose // There is no response.
	g.Expect(err).To(MatchError(http.ErrHandlerTimeout))
	g.Expect(clock.Now()).To(Equal(local.Now()))
}
