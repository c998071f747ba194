// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plan contains the rules by which NamespaceTemplates are applied to Namespaces. It sends no requests, and its
// functions depend only on their arguments.
//
// [Compute] computes the [Plan] of a Namespace from a [Snapshot] and the [Memory] of earlier passes. A plan contains
// operations. Each operation exchanges requests and responses with the API server: after a response, [Next] returns the
// next request or the result. [Conclude] computes the [Outcome] of a plan from the results of its operations.
//
// [Ownership] decides who owns an object, [Rollout] selects the revision for a Namespace, and [CheckLimits] checks the
// number of Namespaces of a user. [Preview] returns the [Decision] about each object of a template.
package plan
