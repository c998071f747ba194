// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package throttling bounds requests to the API server and reports throttling as an error that
// carries the remaining Retry-After.
//
// An overloaded API server answers 429 with a Retry-After header. client-go waits that long and
// retries up to ten times without a limit on the total, and API Priority and Fairness asks for up
// to 32 s. Without this package such a request would fail with a timeout that does not name the
// cause, and the next attempt would come before the Retry-After has passed.
package throttling
