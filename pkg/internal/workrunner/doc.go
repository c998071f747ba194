// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workrunner is what packages initializer and agent have in common: a function is
// called for one Namespace at a time, each on its own, until it has done its work; then
// the one thing is written that says so. What that is, and which Namespaces are owed the
// work, is told by a [Work].
//
// What becomes of one Namespace ([Reconciler]):
//
//	not owed ◀───────────────── the watch says so, at any time: the call is cancelled
//	   │
//	   ▼ owed                   waits until it is due
//	  due ──▶ called ──▶ nil           settled: Finish, repeated until it is written
//	   ▲        │   ├──▶ *Final        settled: Fail, likewise
//	   │        │   └──▶ *Wait         condition; again after the time, or on a change
//	   └────────┴──────▶ other, panic  condition; again after a back-off
//
// What is settled is never called again in this process, whatever happens to the write.
package workrunner
