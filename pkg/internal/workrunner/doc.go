// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workrunner contains the code that packages initializer and finalizer share. It calls a function for each
// matching Namespace until the function succeeds, and then records the success with a write to the Namespace. A
// [Handler] defines the function, the write and the matching Namespaces.
//
//	no match ◀───── after any watch event: the record is discarded, a running call is canceled
//	   │
//	   ▼
//	match ──▶ call ──▶ nil                  completed: Finish, retried until it succeeds
//	   ▲        │  ├──▶ *FailedError        completed: Fail, likewise
//	   │        │  └──▶ *NotYetError        condition; called again after the duration or on a change
//	   └────────┴─────▶ other error, panic  condition; called again with backoff
//
// After the function has completed for a Namespace, this process never calls it again for the same Namespace, even if
// the write fails or the cache is stale: the record of a Namespace remains until a watch event shows that the
// Namespace no longer matches.
package workrunner
