// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package servertime provides the time of the API server, from the Date header of its responses.
package servertime

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// trustedPrefixes are the paths of the requests whose responses set the clock. kube-apiserver itself serves the core
// group, and the group of admission policies, whose APIService it restores. Other responses can come from an aggregated
// API server.
var trustedPrefixes = []string{"/api/v1/", "/apis/admissionregistration.k8s.io/"}

const datePrecision = time.Second

// Clock is the clock of the API server: the local time, limited to the times that are possible
// according to the responses. Therefore, it is exact if the local clock is exact, and otherwise differs
// from the API server's clock by at most a second and the duration of a request, usually by less.
// Managers whose clocks differ can compare its times. Before the first response, it is the local clock.
type Clock struct {
	local clock.PassiveClock
	// base is a local time. The elapsed time since then is measured by the monotonic clock, so a change
	// of the local clock has no effect.
	base time.Time

	lock sync.Mutex
	// earliest and latest limit the API server's time at base. They are zero before the first response.
	earliest, latest time.Time
}

// NewClock returns the clock of the API server to which requests are sent through Wrap.
func NewClock(local clock.PassiveClock) *Clock { return &Clock{local: local, base: local.Now()} }

// Wrap returns a transport that sets the clock.
func (c *Clock) Wrap(next http.RoundTripper) http.RoundTripper { return clockTransport{c, next} }

// Now implements clock.PassiveClock.
func (c *Clock) Now() time.Time {
	c.lock.Lock()
	defer c.lock.Unlock()
	now := c.local.Now()
	elapsed := now.Sub(c.base)
	switch {
	case c.earliest.IsZero():
	case now.Before(c.earliest.Add(elapsed)):
		return c.earliest.Add(elapsed)
	case now.After(c.latest.Add(elapsed)):
		return c.latest.Add(elapsed)
	}
	return now
}

// Since implements clock.PassiveClock.
func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// observe limits the clock by a response: the API server set the date between the request and the response.
func (c *Clock) observe(date, sent, received time.Time) {
	c.lock.Lock()
	defer c.lock.Unlock()
	earliest, latest := date.Add(-received.Sub(c.base)), date.Add(datePrecision-sent.Sub(c.base))
	if c.earliest.IsZero() || earliest.After(c.latest) || latest.Before(c.earliest) {
		c.earliest, c.latest = earliest, latest // The first response, or the API server's clock has changed.
		return
	}
	if earliest.After(c.earliest) {
		c.earliest = earliest
	}
	if latest.Before(c.latest) {
		c.latest = latest
	}
}

type clockTransport struct {
	clock *Clock
	next  http.RoundTripper
}

func (t clockTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	sent := t.clock.local.Now()
	response, err := t.next.RoundTrip(request)
	if err != nil || !slices.ContainsFunc(trustedPrefixes, func(prefix string) bool {
		return strings.HasPrefix(request.URL.Path, prefix)
	}) {
		return response, err
	}
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		t.clock.observe(date, sent, t.clock.local.Now())
	}
	return response, nil
}

// WrappedRoundTripper returns the next transport for client-go.
func (t clockTransport) WrappedRoundTripper() http.RoundTripper { return t.next }
