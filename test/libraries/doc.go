// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package libraries tests pkg/initializer, pkg/finalizer and the examples with a real API server.
// Each initializer has its own ServiceAccount. Some of them run as processes that are killed at
// random times. Controllers of namespace finalizers have only the documented permissions.
//
// The author of each change is determined from two records: a watch that stores every version of
// every namespace, and the audit log of the API server.
package libraries
