// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package timeouts tests, with a real API server, how the manager handles initializers that time
// out, are deregistered, or are not authorized. The manager has the permissions of its
// ServiceAccount.
package timeouts
