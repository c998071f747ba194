// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package throttling

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

var (
	widgets   = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	errOutage = errors.New("the API server is down")
)

// responses is a fake API server that returns a sequence of responses and repeats the last one. Each
// response is a Retry-After in seconds or one of the constants below.
type responses struct {
	sequence []string
	times    []time.Time
}

const (
	success = "200"
	noDelay = "429 without Retry-After"
	silent  = "no response"
)

func (r *responses) RoundTrip(request *http.Request) (*http.Response, error) {
	next := r.sequence[min(len(r.times), len(r.sequence)-1)]
	r.times = append(r.times, time.Now())
	response := &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{}, Request: request}
	body := "Too many requests, please try again later." // the message of API Priority and Fairness
	switch next {
	case silent:
		<-request.Context().Done()
		return nil, request.Context().Err()
	case success:
		response.StatusCode = http.StatusOK
		response.Header.Set("Content-Type", "application/json")
		body = `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"5"}}`
	case noDelay:
	default:
		response.Header.Set("Retry-After", next)
	}
	response.Body = io.NopCloser(strings.NewReader(body))
	return response, nil
}

// TestDo tests this package together with client-go.
func TestDo(t *testing.T) {
	const tooMany = "too many requests"
	tests := map[string]struct {
		responses []string
		wantTook  time.Duration
		wantCount int
		wantError string
		wantDelay time.Duration
	}{
		"a request that is not throttled": {responses: []string{success}, wantCount: 1},
		"throttled twice": {
			responses: []string{"2", "3", success}, wantCount: 3, wantTook: 5 * time.Second,
		},
		"throttled more often than client-go retries": {
			responses: []string{"2"}, wantCount: 11, wantTook: 20 * time.Second, wantError: tooMany, wantDelay: 2 * time.Second,
		},
		"throttled for longer than the timeout": {
			responses: []string{"32"}, wantCount: 1, wantError: errThrottled, wantDelay: 32 * time.Second,
		},
		"throttled for a day": {
			responses: []string{"86400"}, wantCount: 1, wantError: errThrottled, wantDelay: maxRetryAfter,
		},
		"throttled for longer than the longest time.Duration": {
			responses: []string{"9223372036854775807"}, wantCount: 1, wantError: errThrottled, wantDelay: maxRetryAfter,
		},
		"throttled for longer than the remaining timeout": {
			responses: []string{"20"}, wantCount: 2, wantTook: 20 * time.Second, wantError: errThrottled, wantDelay: 20 * time.Second,
		},
		"throttled without Retry-After": {responses: []string{noDelay}, wantCount: 1, wantError: tooMany},
		"no response": {
			responses: []string{silent}, wantCount: 1, wantTook: RequestTimeout, wantError: "deadline exceeded",
		},
		"throttled once, followed by no response": {
			responses: []string{"1", silent}, wantCount: 2, wantTook: RequestTimeout, wantError: "deadline exceeded",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				server := &responses{sequence: test.responses}
				content, err := metadata.NewForConfig(&rest.Config{Transport: NewTransport(server), QPS: -1})
				g.Expect(err).NotTo(HaveOccurred())
				limiter := NewLimiter(1)
				began := time.Now()
				err = limiter.Do(t.Context(), func(ctx context.Context) error {
					_, err := content.Resource(widgets).Namespace("x").List(ctx, metav1.ListOptions{})
					return err
				})
				g.Expect(time.Since(began)).To(Equal(test.wantTook))
				g.Expect(server.times).To(HaveLen(test.wantCount))
				g.Expect(limiter.seats.TryAcquire(1)).To(BeTrue())
				g.Expect(RetryAfter(err)).To(Equal(test.wantDelay))
				if test.wantError == "" {
					g.Expect(err).NotTo(HaveOccurred())
					return
				}
				g.Expect(err).To(MatchError(ContainSubstring(test.wantError)))
				g.Expect(apierrors.IsTooManyRequests(err)).To(Equal(test.wantError != "deadline exceeded"))
			})
		})
	}
}

func TestDoReturnsWhenTheContextIsCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		content, err := metadata.NewForConfig(&rest.Config{
			Transport: NewTransport(&responses{sequence: []string{"20"}}), QPS: -1,
		})
		g.Expect(err).NotTo(HaveOccurred())
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		err = Do(ctx, RequestTimeout, func(ctx context.Context) error {
			_, err := content.Resource(widgets).List(ctx, metav1.ListOptions{})
			return err
		})
		g.Expect(err).To(MatchError(context.Canceled))
		g.Expect(RetryAfter(err)).To(BeZero())
	})
}

func TestRetryAfter(t *testing.T) {
	busy := func(seconds int) error { return apierrors.NewTooManyRequests("busy", seconds) }
	tests := map[string]struct {
		err  error
		want time.Duration
	}{
		"no error":                      {},
		"another error":                 {err: errOutage},
		"throttled":                     {err: busy(3), want: 3 * time.Second},
		"throttled without Retry-After": {err: busy(0)},
		"throttled for a day":           {err: busy(86400), want: maxRetryAfter},
		"a negative Retry-After":        {err: busy(-1)},
		"a wrapped error":               {err: fmt.Errorf("listing: %w", busy(3)), want: 3 * time.Second},
		"the longest of joined errors":  {err: errors.Join(errOutage, busy(3), fmt.Errorf("x: %w", errors.Join(busy(7))), busy(5)), want: 7 * time.Second},
		"a timeout with a Retry-After": {
			err: apierrors.NewTimeoutError("later", 9),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(RetryAfter(test.err)).To(Equal(test.want))
		})
	}
}
