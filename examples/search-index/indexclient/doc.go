// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package indexclient is a client of the index server. Its errors determine what the caller must do:
//
//	*DownError     the server is unreachable               retry
//	*SlowError     the request timed out                    retry; it may have been executed
//	*BusyError     response 429 or 5xx, or a response       retry after RetryAfter
//	               that is not from an index server
//	*RefusedError  any other response                       IsFinal reports whether a retry is useless
//
// If the caller's context is done, the error matches context.Canceled or context.DeadlineExceeded.
package indexclient
