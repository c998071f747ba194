// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package indexclient

import (
	"fmt"
	"net/http"
	"time"
)

// DownError says that there is nobody to talk to.
type DownError struct {
	URL string
	Err error
}

func (e *DownError) Error() string {
	return fmt.Sprintf("the index server at %s is down: %v", e.URL, e.Err)
}

func (e *DownError) Unwrap() error { return e.Err }

// SlowError says that there was no answer in time. The request may have been served, or
// may be yet.
type SlowError struct {
	URL     string
	Timeout time.Duration
}

func (e *SlowError) Error() string {
	return fmt.Sprintf("the index server at %s did not answer within %s", e.URL, e.Timeout)
}

// BusyError says that the server cannot do it now.
type BusyError struct {
	Status  int
	Message string
	// RetryAfter is how long the server wants not to be asked; 0 if it has not said.
	RetryAfter time.Duration
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("the index server answered %s", describe(e.Status, e.Message))
}

// RefusedError says that the server does not do what it was asked for.
type RefusedError struct {
	Status  int
	Message string
	// IsByServer says that it was the index server that refused. Otherwise it was something in
	// between, or something else at that address.
	IsByServer bool
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("the index server refused: %s", describe(e.Status, e.Message))
}

// IsFinal tells whether the same request will be refused however often it is made: there is
// something wrong with the request, and the index server itself says so. A refusal of the
// caller (401, 403), of the address (404, 405) or of the moment (408, 425) is put right
// elsewhere, and so is whatever else there may be: a server that is asked over HTTP and speaks
// HTTPS answers 400 to everything.
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
