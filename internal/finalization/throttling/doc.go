// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package throttling limits the number and the duration of requests to the API server. It reports
// throttling as an error that contains the remaining Retry-After.
//
// An overloaded API server responds with status 429 and a Retry-After header. client-go waits for
// that time and retries up to ten times, without a limit on the total time. API Priority and
// Fairness sets Retry-After to up to 32 s. Without this package, a throttled request would fail with
// a timeout that does not name the cause, and would be retried before Retry-After has passed.
package throttling
