// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package servertime provides the time of the API server, from the Date header of its responses.
package servertime

import (
	"context"
	"net/http"
	"time"
)

type contextKey struct{}

// Record returns a context for requests, and a pointer to the time at which the API server
// responded to the last of these requests, in whole seconds. The time is zero if no request used a
// transport returned by NewTransport, or if the last response had no valid Date header.
func Record(ctx context.Context) (context.Context, *time.Time) {
	recorded := &time.Time{}
	return context.WithValue(ctx, contextKey{}, recorded), recorded
}

// Set records a time in a context returned by Record. It ignores other contexts.
func Set(ctx context.Context, at time.Time) {
	if recorded, ok := ctx.Value(contextKey{}).(*time.Time); ok {
		*recorded = at
	}
}

// NewTransport returns a transport that records the Date header of responses if the context of the
// request was returned by Record.
func NewTransport(next http.RoundTripper) http.RoundTripper {
	return transport{next: next}
}

type transport struct{ next http.RoundTripper }

func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	if err == nil {
		at, _ := http.ParseTime(response.Header.Get("Date")) // The time is zero if the header is invalid.
		Set(request.Context(), at)
	}
	return response, err
}

// WrappedRoundTripper returns the next transport for client-go.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }
