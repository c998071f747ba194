// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package integration shows the API semantics of this project on a real API server with
// RBAC on: what users, initializers and the control plane's own identities can and
// cannot do, with the manager running as its own ServiceAccount.
//
// The specs share one control plane and run one after another, since a configuration
// acts on every namespace. Those that break an installation start one of their own.
package integration
