// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package forcefinalize removes a finalizer that blocks the deletion of a namespace.
//
// The plan is pure: it computes from the state of the cluster what a removal changes, what
// is lost and why the removal is refused. The Finalizer reads that state, tests the plan as a
// server-side dry run, and applies it. Every write carries the UID and the resourceVersion
// that the user was shown, so the API server rejects it if the object has changed since.
package forcefinalize
