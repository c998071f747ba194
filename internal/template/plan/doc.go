// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plan has the rules by which NamespaceTemplates are applied to Namespaces. It sends no requests.
//
// A [Pass] over a Namespace decides which template an object belongs to, what is done with it, what is deleted, and
// what the Namespace records then. [Ownership] decides about one object, [Rollout] which revision a Namespace gets,
// [Memory] has what later passes need, and [CheckLimits] the number of Namespaces of a user.
package plan
