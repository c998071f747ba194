// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package model searches small models of the initialization and of the finalization exhaustively. In each
// state, every actor that can act does so: users, initializers, the operator, a second controller, and API
// servers whose caches are stale. [Check] returns the shortest sequence of actions that violates an invariant,
// or that leads to a state from which no end state can be reached without a user.
//
// TestRules takes out each rule of the models in turn, and expects a violation. So each rule is necessary, and
// the invariants detect its absence.
//
// # What the models share with the code
//
// The operator of the model calls initialization.Decide, ComputeRegistrations and SplitNames,
// and finalization.HasFinalizer, OtherFinalizers, GracePeriod.Choose and DelayingWebhooks. A test compares the
// phases of the model with initialization.ParseState.
//
// The rest is written again: the admission policies, which are CEL, the hold webhooks, and the passes of
// internal/finalization, which perform requests. Tests in other packages cover that code.
//
// # Recordings
//
// A spec of test/servers records what happens to namespaces on two API servers. [Recording.Check] requires that
// each change in etcd is an action of the same actor that the model allows in one of its possible states, after
// the grace period, the timeout or the delay of deregistration. Between two changes, the model can perform all
// actions that etcd does not store, such as those of caches. Each recorded object is checked separately.
// TestChangedRecording changes a recording and expects that the models do not allow it.
//
// A recording does not contain rejected requests. Deletions of objects by users, selectors that change, and
// more than three initializers are not in the models, and must not be in a recording.
//
// # Bounds
//
// Up to three API servers, three Namespaces of one name, three initializers and three objects of two types. Each
// scenario of the tests contains some of the actors. A test requires an entry in TestRules for each rule.
//
// # Assumptions
//
//   - The cache of an API server observes the versions of a Namespace in order, and is at most four versions
//     stale. It can contain any of them when the operator or an initializer reads it.
//   - All API servers observe a deletion, and complete the requests that they have admitted before, within the
//     grace period: 1 s for the only API server without webhooks, and 5 s otherwise.
//   - A second controller that owns the namespace finalizer waits 5 s.
//   - The operator observes a deleted configuration before the delay of deregistration ends. A configuration is
//     deleted only once.
//
// # Not modelled
//
// State that users send in the creation of a Namespace, templates, label repairs, deletion protection, the limits
// of the hold webhooks, the order in which types are deleted, pages, throttling, types without list, and
// namespaces without finalizers.
package model
