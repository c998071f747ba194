// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package timeouts tests initializers that do not complete against a real API server: initializers
// that time out, that are deregistered, and that are not authorized. The manager has the permissions of
// its ServiceAccount.
package timeouts
