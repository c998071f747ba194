// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workrunner is the common part of packages initializer and finalizer. It calls a function
// for each Namespace that matches, until the function has succeeded, and then makes the one write
// that records the success. A [Handler] defines the function, the write and the Namespaces.
//
// Life cycle of one Namespace ([Reconciler]):
//
//	no match ◀───────────────── at any watch event: a running call is canceled
//	   │
//	   ▼ match                  waits until it is ready
//	ready ──▶ call ──▶ nil               completed: Finish, retried until it succeeds
//	   ▲        │   ├──▶ *FailedError      completed: Fail, likewise
//	   │        │   └──▶ *NotYetError      condition; called again after the duration or on a change
//	   └────────┴──────▶ other error, panic   condition; called again with backoff
//
// After the function has completed, this process never calls it again for the Namespace, even if
// the write fails.
package workrunner
