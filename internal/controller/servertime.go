// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"net/http"
	"time"
)

type serverTimeKey struct{}

// askServerTime makes the requests of a context note the time of the API server, in whole
// seconds. It stays zero where none of them goes through noteServerTime, and where an answer
// does not tell.
func askServerTime(ctx context.Context) (context.Context, *time.Time) {
	at := &time.Time{}
	return context.WithValue(ctx, serverTimeKey{}, at), at
}

// noteServerTime returns a transport that notes when the API server says to have answered.
func noteServerTime(next http.RoundTripper) http.RoundTripper {
	return serverTimeNoter{next: next}
}

type serverTimeNoter struct{ next http.RoundTripper }

func (n serverTimeNoter) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := n.next.RoundTrip(request)
	if at, isAsked := request.Context().Value(serverTimeKey{}).(*time.Time); isAsked && err == nil {
		*at, _ = http.ParseTime(response.Header.Get("Date")) // Zero if it is not there.
	}
	return response, err
}

// WrappedRoundTripper lets client-go look behind the transport.
func (n serverTimeNoter) WrappedRoundTripper() http.RoundTripper { return n.next }
