// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// An API server that has too much to do puts requests off: it answers 429 and says in
// Retry-After how many seconds to wait. client-go waits, and tries again up to ten times.
// It knows no bound to the time, and API priority and fairness asks for up to 32 s. A
// request that has to end before that would be one that took too long, nobody would know
// why, and the next one would come too early.

// maxRetryAfter bounds Retry-After, regardless of the server: an aggregated API server must not delay a
// namespace for longer. Upstream's namespace controller never waits longer either.
const maxRetryAfter = time.Minute

// retryAfter returns the duration of a Retry-After.
func retryAfter(seconds int) time.Duration {
	return time.Duration(min(max(seconds, 0), int(maxRetryAfter.Seconds()))) * time.Second
}

// errPutOff has no figure in it: it stands in a condition, which must not change with
// every attempt.
const errPutOff = "the API server puts requests off (429, too many requests) for longer than a request may wait"

// postponement is what the API server has said of one request.
type postponement struct {
	deadline time.Time
	// giveUp ends the request.
	giveUp context.CancelFunc

	lock sync.Mutex
	// until is when the API server wants to be asked again.
	until time.Time
}

type postponementKey struct{}

// within makes a request that may take so long, the times that the API server puts it off
// included. Where that is too long the error says so, and carries what is left of the time
// to wait. It returns as soon as that is known, so that nothing is held for a request that
// only waits for its end.
func within(ctx context.Context, timeout time.Duration, request func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	noted := &postponement{giveUp: cancel}
	noted.deadline, _ = bounded.Deadline()
	err := request(context.WithValue(bounded, postponementKey{}, noted))
	if err == nil || ctx.Err() != nil || bounded.Err() == nil {
		return err
	}
	noted.lock.Lock()
	defer noted.lock.Unlock()
	left := math.Ceil(time.Until(noted.until).Seconds())
	if noted.until.IsZero() || left <= 0 {
		return err // It did not end for having been put off.
	}
	return apierrors.NewTooManyRequests(errPutOff, int(left))
}

// take notes an answer.
func (p *postponement) take(response *http.Response) {
	seconds, err := strconv.Atoi(response.Header.Get("Retry-After"))
	p.lock.Lock()
	defer p.lock.Unlock()
	p.until = time.Time{}
	if response.StatusCode != http.StatusTooManyRequests || err != nil {
		return
	}
	p.until = time.Now().Add(retryAfter(seconds))
	if p.until.After(p.deadline) {
		p.giveUp()
	}
}

// NotePostponements returns a transport for the clients that finalization works with: it
// notes when the API server puts a request off.
func NotePostponements(next http.RoundTripper) http.RoundTripper {
	return postponementNoter{next: next}
}

type postponementNoter struct{ next http.RoundTripper }

func (n postponementNoter) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := n.next.RoundTrip(request)
	if noted, isNoted := request.Context().Value(postponementKey{}).(*postponement); isNoted && err == nil {
		noted.take(response)
	}
	return response, err
}

// WrappedRoundTripper lets client-go look behind the transport.
func (n postponementNoter) WrappedRoundTripper() http.RoundTripper { return n.next }

// RetryAfter returns how long the API server wants not to be asked again: the longest such
// time in an error and those that are joined in it, or 0 where it has said none. It is bounded
// by maxRetryAfter.
func RetryAfter(err error) time.Duration {
	var wait time.Duration
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		for _, part := range joined.Unwrap() {
			wait = max(wait, RetryAfter(part))
		}
		return wait
	}
	if seconds, hasDelay := apierrors.SuggestsClientDelay(err); hasDelay && apierrors.IsTooManyRequests(err) {
		wait = retryAfter(seconds)
	}
	return wait
}
