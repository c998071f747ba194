// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package metadataclient

import (
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
)

const (
	// maxResponse is how many bytes of one response are read. The metadata of 500 objects, which
	// are the most that a request asks for, usually takes about 1 MiB.
	maxResponse = 16 << 20
	// maxTogether is how many bytes the responses that are being read at a time may have in
	// all, not counting the first uncounted bytes of each: the manager's limit is 256 MiB of
	// memory, and client-go allocates up to about twice the size of a response.
	maxTogether = 32 << 20
	uncounted   = 1 << 20
	// smallPage is how many objects a list asks for after a response that was too large. It is
	// below maxResponse if each of them is as large as etcd accepts, 1.5 MiB.
	smallPage = 8
)

// ResponseTooLargeError is the error of reading a response that is larger than the limit.
type ResponseTooLargeError struct{ text string }

func (e *ResponseTooLargeError) Error() string { return e.text }

// LimitResponses returns a transport that stops reading responses that are too large. A watch is
// a stream, which ends there as if the server had closed it: the client watches again from the
// last event. So no event can be larger than that either. Responses are counted after they were
// decompressed.
func LimitResponses(next http.RoundTripper) http.RoundTripper {
	return &limiter{next: next}
}

type limiter struct {
	next http.RoundTripper
	// held is how many bytes the responses have that are being read.
	held atomic.Int64
}

func (l *limiter) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := l.next.RoundTrip(request)
	if err != nil {
		return response, err
	}
	body := &limitedBody{ReadCloser: response.Body, held: &l.held}
	body.isWatch = request.URL.Query().Get("watch") != ""
	response.Body = body
	return response, nil
}

// WrappedRoundTripper returns the next transport for client-go.
func (l *limiter) WrappedRoundTripper() http.RoundTripper { return l.next }

type limitedBody struct {
	io.ReadCloser
	isWatch bool
	held    *atomic.Int64
	// read is how many bytes were read, counted how many of them are part of held.
	read, counted int64
	err           error
}

func (b *limitedBody) Read(buffer []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.ReadCloser.Read(buffer)
	b.read += int64(n)
	if b.err = b.exceeded(); b.err != nil {
		return 0, b.err
	}
	return n, err
}

// exceeded returns the error of a response that is too large by now.
func (b *limitedBody) exceeded() error {
	switch {
	case b.read > maxResponse && b.isWatch:
		return io.EOF
	case b.read > maxResponse:
		return &ResponseTooLargeError{fmt.Sprintf("the response is larger than %d MiB", maxResponse>>20)}
	case b.isWatch || b.read <= uncounted:
		return nil // What was read of a watch is not kept.
	}
	more := b.read - uncounted - b.counted
	b.counted += more
	if b.held.Add(more) > maxTogether {
		return &ResponseTooLargeError{fmt.Sprintf("the response is larger than %d MiB, and responses of more than %d MiB "+
			"are being read at the same time", uncounted>>20, maxTogether>>20)}
	}
	return nil
}

func (b *limitedBody) Close() error {
	b.held.Add(-b.counted)
	b.counted = 0
	return b.ReadCloser.Close()
}
