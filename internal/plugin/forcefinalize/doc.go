// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package forcefinalize removes a finalizer that blocks the deletion of a namespace.
//
// Computing a plan is pure: the plan is derived only from the state of the cluster. It contains
// what a removal changes, what is lost, and why the removal is refused. The Finalizer reads the
// state, tests the plan with a server-side dry run, and applies it. Every write contains the UID
// and the resourceVersion in the plan. If the object has changed since, the API server rejects the
// write.
package forcefinalize
