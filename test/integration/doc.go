// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package integration tests the API semantics of this project on a real API server with
// RBAC: what users, initializers and the identities of the control plane can and
// cannot do, with the manager running as its own ServiceAccount.
//
// The specs of a process share one control plane and run one after another, since a configuration
// applies to every namespace. Specs that modify the installation start their own control plane.
package integration
