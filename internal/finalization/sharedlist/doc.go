// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sharedlist lists the objects in terminating namespaces with few list requests, because
// concurrent callers share cluster-wide lists.
//
// # Why a shared result confirms that a namespace is empty
//
// A caller needs results of requests that were sent at a given time or later, usually after the grace
// period of the namespace. A result of a request for another caller meets this need, because:
//
//   - Lists are consistent reads. Because requests have no resourceVersion, a result is at least as
//     recent as its request. All pages of one list show the same state. Therefore, the age
//     of a result is measured from its request, not from its response, and an incomplete list is
//     discarded.
//   - After the grace period, every API server rejects create requests in the namespace. Therefore, no
//     object can be created after the state that the list shows.
//   - A cluster-wide list contains the objects in all namespaces. If it contains no object in a
//     namespace, there is none of this type, no matter who sent the request.
//   - Resource types can be listed at different times, because a type that is empty after the grace
//     period stays empty. Once the last type is listed, all types are empty.
//
// A result that is older than the caller's pass can also confirm that the namespace is empty.
// However, the objects in the result might have been deleted before the caller started to watch
// them. Therefore, package finalization sets the earliest acceptable time in each call.
//
// Only types that kube-apiserver itself serves are listed cluster-wide, because an aggregated API
// server may implement cluster-wide lists incorrectly.
//
// A list request that the API server throttles (429) is treated as failed.
package sharedlist
