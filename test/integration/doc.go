// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package integration tests the API semantics of this project on a real API server with RBAC: what
// users, initializers and control plane components can and cannot do. The manager runs as its own
// ServiceAccount.
//
// The specs of a process share a control plane and run in sequence, because a configuration applies
// to every namespace. Specs that modify the installation start their own control plane.
package integration
