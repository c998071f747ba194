// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

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
	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// answers are those of an API server, one after the other and the last one again and
// again: the seconds of a Retry-After, or one of the words below.
type answers struct {
	sequence []string
	times    []time.Time
}

const (
	success   = "200"
	withoutIt = "429 without Retry-After"
	silent    = "no answer"
)

func (a *answers) RoundTrip(request *http.Request) (*http.Response, error) {
	answer := a.sequence[min(len(a.times), len(a.sequence)-1)]
	a.times = append(a.times, time.Now())
	response := &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{}, Request: request}
	body := "Too many requests, please try again later." // as API priority and fairness says it
	switch answer {
	case silent:
		<-request.Context().Done()
		return nil, request.Context().Err()
	case success:
		response.StatusCode = http.StatusOK
		response.Header.Set("Content-Type", "application/json")
		body = `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"5"}}`
	case withoutIt:
	default:
		response.Header.Set("Retry-After", answer)
	}
	response.Body = io.NopCloser(strings.NewReader(body))
	return response, nil
}

// What client-go and finalization make together of an API server that puts requests off.
func TestPutOff(t *testing.T) {
	const tooMany = "too many requests"
	tests := map[string]struct {
		answers   []string
		wantTook  time.Duration
		wantCount int
		wantError string
		wantDelay time.Duration
	}{
		"not at all": {answers: []string{success}, wantCount: 1},
		"twice": {
			answers: []string{"2", "3", success}, wantCount: 3, wantTook: 5 * time.Second,
		},
		"shortly, again and again": {
			answers: []string{"2"}, wantCount: 11, wantTook: 20 * time.Second, wantError: tooMany, wantDelay: 2 * time.Second,
		},
		"for longer than a request may wait": {
			answers: []string{"32"}, wantCount: 1, wantError: errPutOff, wantDelay: 32 * time.Second,
		},
		"for a day": {
			answers: []string{"86400"}, wantCount: 1, wantError: errPutOff, wantDelay: maxRetryAfter,
		},
		"for longer than a duration": {
			answers: []string{"9223372036854775807"}, wantCount: 1, wantError: errPutOff, wantDelay: maxRetryAfter,
		},
		"in the end for longer than is left": {
			answers: []string{"20"}, wantCount: 2, wantTook: 20 * time.Second, wantError: errPutOff, wantDelay: 20 * time.Second,
		},
		"without a time": {answers: []string{withoutIt}, wantCount: 1, wantError: tooMany},
		"no answer at all": {
			answers: []string{silent}, wantCount: 1, wantTook: requestTimeout, wantError: "deadline exceeded",
		},
		"once, and then no answer": {
			answers: []string{"1", silent}, wantCount: 2, wantTook: requestTimeout, wantError: "deadline exceeded",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				server := &answers{sequence: test.answers}
				content, err := metadata.NewForConfig(&rest.Config{Transport: NotePostponements(server), QPS: -1})
				g.Expect(err).NotTo(HaveOccurred())
				turns := semaphore.NewWeighted(1)
				began := time.Now()
				err = inTurn(t.Context(), turns, func(ctx context.Context) error {
					_, err := content.Resource(widgetsType.GroupVersionResource).Namespace("x").List(ctx, metav1.ListOptions{})
					return err
				})
				g.Expect(time.Since(began)).To(Equal(test.wantTook))
				g.Expect(server.times).To(HaveLen(test.wantCount))
				g.Expect(turns.TryAcquire(1)).To(BeTrue(), "it is somebody else's turn")
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

func TestPutOffEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		content, err := metadata.NewForConfig(&rest.Config{
			Transport: NotePostponements(&answers{sequence: []string{"20"}}), QPS: -1,
		})
		g.Expect(err).NotTo(HaveOccurred())
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		err = within(ctx, requestTimeout, func(ctx context.Context) error {
			_, err := content.Resource(widgetsType.GroupVersionResource).List(ctx, metav1.ListOptions{})
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
		"nothing":            {},
		"something else":     {err: errOutage},
		"put off":            {err: busy(3), want: 3 * time.Second},
		"put off, no time":   {err: busy(0)},
		"put off for a day":  {err: busy(86400), want: maxRetryAfter},
		"a negative time":    {err: busy(-1)},
		"wrapped":            {err: fmt.Errorf("listing: %w", busy(3)), want: 3 * time.Second},
		"the longest counts": {err: errors.Join(errOutage, busy(3), fmt.Errorf("x: %w", errors.Join(busy(7))), busy(5)), want: 7 * time.Second},
		"of several objects": {err: joinWith("; ", []error{errOutage, busy(4)}), want: 4 * time.Second},
		"a timeout with a delay of its own": {
			err: apierrors.NewTimeoutError("later", 9),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(RetryAfter(test.err)).To(Equal(test.want))
		})
	}
}

// A webhook may refuse with 429. That is about one object, and keeps nothing waiting.
func TestPassTriesAllWhereDeletionsAreRefusedWithTooManyRequests(t *testing.T) {
	g := NewWithT(t)
	server := &contentServer{objects: map[string]objects{}, errors: map[string]error{}}
	for i := range 2 * deletesAtOnce {
		name := fmt.Sprintf("w%d", i)
		server.objects["widgets"] = append(server.objects["widgets"], object(name))
		server.errors["delete widgets/"+name] = apierrors.NewTooManyRequests("refused", 0)
	}
	deleter, _ := newDeleter(server, &namespaceReader{namespace: terminating()}, "v1/configmaps", "example.com/v1/widgets")
	report, err := deleter.Pass(t.Context(), terminating(), now, now, &Ledger{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(server.recorded("delete widgets")).To(HaveLen(2 * deletesAtOnce))
	g.Expect(RetryAfter(report.Err())).To(BeZero())
	g.Expect(report.IsProof).To(BeFalse())
}

// Each further request would wait as long as the first, in the way of other namespaces.
func TestPassLeavesTheRestWhereDeletionsArePutOff(t *testing.T) {
	g := NewWithT(t)
	server := &contentServer{objects: map[string]objects{}, errors: map[string]error{}}
	for i := range pageSize + 100 {
		name := fmt.Sprintf("w%d", i)
		server.objects["widgets"] = append(server.objects["widgets"], object(name))
		server.errors["delete widgets/"+name] = apierrors.NewTooManyRequests("busy", 7)
	}
	server.objects["configmaps"] = objects{object("c")}
	deleter, _ := newDeleter(server, &namespaceReader{namespace: terminating()}, "v1/configmaps", "example.com/v1/widgets")
	report, err := deleter.Pass(t.Context(), terminating(), now, now, &Ledger{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(server.recorded("delete widgets"))).To(And(BeNumerically(">", 0), BeNumerically("<=", deletesAtOnce)))
	g.Expect(server.recorded("delete configmaps")).To(BeEmpty(), "what may be needed yet")
	g.Expect(report.IsProof).To(BeFalse())
	g.Expect(report.Err()).To(MatchError(ContainSubstring("busy")))
	g.Expect(RetryAfter(report.Err())).To(Equal(7 * time.Second))
	g.Expect(report.Remaining[len(report.Remaining)-1].Count).To(Equal(pageSize + 100))
}
