// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package indexclient talks to the index server. Its errors tell a caller what to do next:
//
//	*DownError     nobody answers                          try again
//	*SlowError     the answer did not come in time          try again; it may have been done
//	*BusyError     an answer 429 or 5xx, or one that is     try again, and not before RetryAfter
//	               not that of an index server
//	*RefusedError  any other answer                         look at it: IsFinal says whether it is of
//	                                                        any use to ask again
//
// An end of the caller's own context is none of these, and matches context.Canceled or
// context.DeadlineExceeded.
package indexclient
