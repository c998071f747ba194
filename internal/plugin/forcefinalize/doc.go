// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package forcefinalize removes a finalizer that blocks the deletion of a namespace.
//
// Computing the plan is pure: from the state of the cluster it derives what a removal changes, what
// is lost and why the removal is refused. The Finalizer reads that state, tests the plan with a
// server-side dry run, and applies it. Every write contains the UID and the resourceVersion of the
// plan that the user has seen. If the object has changed since, the API server rejects the write.
package forcefinalize
