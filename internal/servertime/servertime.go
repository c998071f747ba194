// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package servertime reads the time of the API server from the Date header of its responses.
package servertime

import (
	"context"
	"net/http"
	"time"
)

type contextKey struct{}

// Record returns a context whose requests record the time of the API server, in whole seconds. The
// time is zero if no request used a transport of NewTransport, or if the last response had no
// valid Date header.
func Record(ctx context.Context) (context.Context, *time.Time) {
	recorded := &time.Time{}
	return context.WithValue(ctx, contextKey{}, recorded), recorded
}

// Set records a time for a context of Record. Other contexts are ignored.
func Set(ctx context.Context, at time.Time) {
	if recorded, ok := ctx.Value(contextKey{}).(*time.Time); ok {
		*recorded = at
	}
}

// NewTransport returns a transport that records the Date header of responses to requests with a
// context of Record.
func NewTransport(next http.RoundTripper) http.RoundTripper {
	return transport{next: next}
}

type transport struct{ next http.RoundTripper }

func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	if err == nil {
		at, _ := http.ParseTime(response.Header.Get("Date")) // Zero if the header is missing or invalid.
		Set(request.Context(), at)
	}
	return response, err
}

// WrappedRoundTripper lets client-go unwrap the transport.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }
