// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package contentrole keeps ClusterRoles that name resource types instead of `*/*`: the ClusterRole content with the
// types that finalization lists and deletes, and the ClusterRole template-objects with those that templates contain.
//
// RBAC cannot express "all namespaced types". Therefore the operator adds each type that discovery shows to the role,
// for which it holds the verb escalate on this one ClusterRole. Compute decides what the role contains: never a
// wildcard, a subresource, a cluster-scoped type, or the group admissionregistration.k8s.io. Aggregated API servers
// can claim anything in discovery, so they add nothing to the groups of kube-apiserver, and only a limited number of
// types.
//
// A type stays in the role after discovery no longer shows it: of two API servers with different versions, one may not
// serve it.
package contentrole
