// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plan has the rules by which NamespaceTemplates are applied to Namespaces. It sends no requests, and its
// functions depend only on their arguments.
//
// [Compute] decides from a [Snapshot] and the [Memory] of earlier passes what is done with a Namespace. The [Plan] has
// operations, each an exchange of requests and responses with the API server, in which [Next] decides what follows from
// a response. [Conclude] returns the [Outcome] of a plan with the results of its operations.
//
// [Ownership] decides about one object, [Rollout] which revision a Namespace gets, and [CheckLimits] about the number
// of Namespaces of a user. [Preview] returns the [Decision] about each object of a template.
package plan
