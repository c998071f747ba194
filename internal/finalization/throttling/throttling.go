// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package throttling

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// RequestTimeout limits the duration of one request of a Limiter, including retries after throttling.
const RequestTimeout = 30 * time.Second

// maxRetryAfter limits Retry-After for all servers, because an aggregated API server must not delay
// a namespace for longer. Upstream's namespace controller also never waits longer.
const maxRetryAfter = time.Minute

// errThrottled contains no duration, because it becomes part of a condition, and the message of a
// condition must not change with every attempt.
const errThrottled = "the API server is throttling requests (429, too many requests) for longer than the request " +
	"timeout"

// retryAfter returns the duration of a Retry-After header, up to maxRetryAfter.
func retryAfter(seconds int) time.Duration {
	return time.Duration(min(max(seconds, 0), int(maxRetryAfter.Seconds()))) * time.Second
}

// Limiter limits the number of concurrent requests. Requests wait in a FIFO queue, so that a namespace
// with many objects does not block the others.
type Limiter struct{ seats *semaphore.Weighted }

// NewLimiter returns a Limiter for a number of concurrent requests.
func NewLimiter(concurrency int64) *Limiter {
	return &Limiter{seats: semaphore.NewWeighted(concurrency)}
}

// Do sends a request, with RequestTimeout, once the limit allows it.
func (l *Limiter) Do(ctx context.Context, request func(context.Context) error) error {
	if err := l.seats.Acquire(ctx, 1); err != nil {
		return err
	}
	defer l.seats.Release(1)
	return Do(ctx, RequestTimeout, request)
}

// retryState records how one request was last throttled.
type retryState struct {
	deadline time.Time
	cancel   context.CancelFunc

	lock sync.Mutex
	// retryAt is when the request may be retried. It is zero if the last response was not a 429.
	retryAt time.Time
}

type retryStateKey struct{}

// Do sends a request that must finish within the timeout, including retries after throttling. If
// Retry-After exceeds the timeout, Do immediately returns an error of status 429 with the remaining
// Retry-After. Therefore, a request that is only waiting to be retried does not block other
// requests.
func Do(ctx context.Context, timeout time.Duration, request func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	state := &retryState{cancel: cancel}
	state.deadline, _ = bounded.Deadline()
	err := request(context.WithValue(bounded, retryStateKey{}, state))
	if err == nil || ctx.Err() != nil || bounded.Err() == nil {
		return err
	}
	state.lock.Lock()
	defer state.lock.Unlock()
	seconds := math.Ceil(time.Until(state.retryAt).Seconds())
	if state.retryAt.IsZero() || seconds <= 0 {
		return err // Throttling is not the cause.
	}
	return apierrors.NewTooManyRequests(errThrottled, int(seconds))
}

// record stores the Retry-After of a response, and cancels the request if the retry would exceed the
// deadline.
func (s *retryState) record(response *http.Response) {
	seconds, err := strconv.Atoi(response.Header.Get("Retry-After"))
	s.lock.Lock()
	defer s.lock.Unlock()
	s.retryAt = time.Time{}
	if response.StatusCode != http.StatusTooManyRequests || err != nil {
		return
	}
	s.retryAt = time.Now().Add(retryAfter(seconds))
	if s.retryAt.After(s.deadline) {
		s.cancel()
	}
}

// NewTransport returns a transport that records the throttling of requests sent by Do.
func NewTransport(next http.RoundTripper) http.RoundTripper {
	return transport{next: next}
}

type transport struct{ next http.RoundTripper }

func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	if state, ok := request.Context().Value(retryStateKey{}).(*retryState); ok && err == nil {
		state.record(response)
	}
	return response, err
}

// WrappedRoundTripper returns the next transport for client-go.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RetryAfter returns the longest Retry-After of an error and of the errors that it joins, up to
// maxRetryAfter. It returns 0 if there is none.
func RetryAfter(err error) time.Duration {
	var longest time.Duration
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		for _, part := range joined.Unwrap() {
			longest = max(longest, RetryAfter(part))
		}
		return longest
	}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok && apierrors.IsTooManyRequests(err) {
		return retryAfter(seconds)
	}
	return 0
}
