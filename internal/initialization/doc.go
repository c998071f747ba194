// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package initialization decides how namespaces are initialized. All functions are pure: they make
// no API calls and do not read the clock.
//
// [Merge] computes the effective list of initializers from all configurations. [ParseState] reads the
// phase of a Namespace from its labels and annotations. [Decide] returns everything that the
// operator does about the Namespace: conditions, timeouts, skipped initializers, failure and
// deletion.
//
// The phases of a Namespace:
//
//	Initializing ──▶ Initialized    the pending list has become empty
//	      │
//	      └────────▶ Failed         a result with status Failure was set
//
// A Namespace that never had a pending list is Initialized. It never returns to Initializing: admission rejects
// a pending list on a Namespace that has none (config/admission/guard.yaml).
package initialization
