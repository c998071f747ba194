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
//	NotRequired                     the Namespace never had a pending list
//	Pending ──▶ Completed           the pending list has become empty
//	   │
//	   └──────▶ Failed              a result with status Failure was set
//
// A Namespace never returns to Pending: admission rejects a pending list on a Namespace that has
// none (config/admission/guard.yaml).
package initialization
