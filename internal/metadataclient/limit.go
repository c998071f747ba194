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
	// maxResponse is the maximum size of a response in bytes. The size of the metadata of 500 objects,
	// the largest page, is usually about 1 MiB.
	maxResponse = 16 << 20
	// maxTogether is the maximum total size in bytes of the responses that are read concurrently,
	// excluding the first 1 MiB (uncounted) of each response. The manager's memory limit is 256
	// MiB, and client-go allocates up to about twice the size of a response.
	maxTogether = 32 << 20
	uncounted   = 1 << 20
	// smallPage is the size of a page that does not exceed maxResponse even if each object has the maximum
	// size that etcd accepts, 1.5 MiB.
	smallPage = 8
)

// smallerPages are the page sizes that are tried after a response was too large.
var smallerPages = []int64{500, smallPage}

// ResponseTooLargeError is returned when a response exceeds the size limit.
type ResponseTooLargeError struct{ text string }

func (e *ResponseTooLargeError) Error() string { return e.text }

// LimitResponses returns a transport that stops reading responses that are too large. When a watch
// reaches the limit, it ends as if the server had closed it, and the client starts another watch
// from the last event. Therefore, the limit also applies to single events. The limit applies to the
// decompressed response.
func LimitResponses(next http.RoundTripper) http.RoundTripper {
	return &limiter{next: next}
}

type limiter struct {
	next http.RoundTripper
	// held is the total number of counted bytes in the responses that are being read.
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
	// read is the number of bytes that were read, and counted is the number of these bytes in held.
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

// exceeded returns an error if the response has become too large.
func (b *limitedBody) exceeded() error {
	switch {
	case b.read > maxResponse && b.isWatch:
		return io.EOF
	case b.read > maxResponse:
		return &ResponseTooLargeError{fmt.Sprintf("the response is larger than %d MiB", maxResponse>>20)}
	case b.isWatch || b.read <= uncounted:
		return nil // Watch events are not kept in memory.
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
