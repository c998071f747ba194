// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package observe reads what package plan decides about. [Observer.Observe] returns everything that is known about one
// Namespace. Most of it comes from caches: [Objects] watches the kinds that templates contain, [Sources] the sources of
// copies, [Revisions] contains the revisions of templates, and [Programs] their compiled expressions. Three stores
// contain facts that only this process knows: [Writes] contains the operator's writes that a cache may not contain yet,
// [Rollouts] the outcomes of all Namespaces and their turns in rollouts, and [Limits] the Namespaces that were admitted
// for each user.
package observe
