// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package indexclient

import (
	"fmt"
	"net/http"
	"time"
)

// DownError is returned if the server is unreachable.
type DownError struct {
	URL string
	Err error
}

func (e *DownError) Error() string {
	return fmt.Sprintf("the index server at %s is down: %v", e.URL, e.Err)
}

func (e *DownError) Unwrap() error { return e.Err }

// SlowError is returned if a request times out. The server might have executed the request, or
// might still execute it.
type SlowError struct {
	URL     string
	Timeout time.Duration
}

func (e *SlowError) Error() string {
	return fmt.Sprintf("the index server at %s did not respond within %s", e.URL, e.Timeout)
}

// BusyError is returned if the server cannot execute the request now.
type BusyError struct {
	Status  int
	Message string
	// RetryAfter is the delay before the next attempt that the server requests, or 0.
	RetryAfter time.Duration
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("the index server returned %s", describe(e.Status, e.Message))
}

// RefusedError is returned if the server rejects the request.
type RefusedError struct {
	Status  int
	Message string
	// IsByServer reports whether the index server, and not a proxy, rejected the request.
	IsByServer bool
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("the index server rejected the request: %s", describe(e.Status, e.Message))
}

// IsFinal reports whether the server would reject every retry, because the request itself is
// invalid. Errors caused by authentication (401, 403), the address (404, 405) or timing (408, 425)
// can be fixed without changing the request. Responses from proxies are not final: an HTTPS server
// returns 400 to every HTTP request.
func (e *RefusedError) IsFinal() bool {
	if !e.IsByServer {
		return false
	}
	switch e.Status {
	case http.StatusBadRequest, http.StatusConflict, http.StatusGone,
		http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return true
	default:
		return false
	}
}

func describe(status int, message string) string {
	text := fmt.Sprintf("%d %s", status, http.StatusText(status))
	if message != "" {
		text += ": " + message
	}
	return text
}
