// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package indexclient is a client for the index server. The type of an error determines what the
// caller must do:
//
//	*DownError     the server is unreachable               retry
//	*SlowError     the request timed out                    retry; it might have been executed
//	*BusyError     response 429 or 5xx, or a response       retry after RetryAfter
//	               that is not from an index server
//	*RefusedError  any other response                       IsFinal reports whether retries fail
//
// If the caller's context is done, the error matches context.Canceled or context.DeadlineExceeded.
package indexclient
