// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package initialization tests on a real API server what happens to a namespace until it is initialized: what users,
// initializers and control plane components can and cannot do, and how the manager handles initializers that time out,
// are deregistered, or are not authorized. The manager runs as its own ServiceAccount.
//
// The specs of a process share a control plane and run in sequence, because a configuration applies
// to every namespace. Specs that modify the installation start their own control plane.
package initialization
