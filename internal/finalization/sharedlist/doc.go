// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sharedlist lists the objects of terminating namespaces with as few list requests as
// possible: concurrent callers share cluster-wide lists.
//
// # Why a shared result confirms that a namespace is empty
//
// A caller needs results of requests that were sent at a given time or later, in practice after the
// grace period of its namespace. A result for another caller satisfies that for these reasons:
//
//   - Lists are consistent reads. Without a resourceVersion the result is at least as recent as the
//     request, and all pages of one list show the same state. A result therefore has the time of its
//     request, never that of its response, and an incomplete list is not a result.
//   - After the grace period no API server admits a creation in the namespace, so no object can be
//     created after the state that the list shows.
//   - A cluster-wide list contains all objects of each namespace. If it contains no object of a
//     namespace, that namespace has none, regardless of who sent the request.
//   - Resource types may be listed at different times, because a type that is empty after the grace
//     period stays empty: once the last type is listed, all are empty.
//
// A result that is older than its caller's pass confirms as much, but the objects in it may have
// been deleted before the caller watched them. Package finalization therefore chooses the earliest
// acceptable time of each call.
//
// Only types served by kube-apiserver itself are listed cluster-wide. An aggregated API server may
// implement such lists incorrectly.
//
// If the API server throttles a list request, with 429, the type counts as one that could not be
// listed.
package sharedlist
