// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package model searches a small model of the finalization exhaustively. In each state, every actor that can act
// does so: users, other controllers, the operator, and API servers whose caches are stale. [Check] returns the
// shortest sequence of actions that violates an invariant, or that leads to a state from which no end state can be
// reached without a user.
//
// TestRules takes out each rule of the model in turn, and expects a violation. So each rule is necessary, and
// the invariants detect its absence. A test requires an entry in TestRules for each rule.
//
// The operator of the model calls finalization.HasFinalizer, OtherFinalizers, GracePeriod.Choose and
// DelayingWebhooks. The passes of internal/finalization, which perform requests, are written again; tests in other
// packages cover that code.
//
// # Assumptions
//
//   - There are up to three API servers, three Namespaces of one name, and three objects of two types.
//   - The cache of an API server observes the versions of a Namespace in order, and is at most four versions
//     stale. It can contain any of them when the operator reads it.
//   - All API servers observe a deletion, and complete the requests that they have admitted before, within the
//     grace period: 1 s for the only API server without webhooks, and 5 s otherwise.
//   - A second controller that owns the namespace finalizer waits 5 s.
//
// The order in which types are deleted, pages, throttling, types without list, and namespaces without finalizers are
// not in the model.
package model
