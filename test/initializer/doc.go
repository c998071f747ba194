// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package initializer tests initializers with a real API server: initializers that use
// pkg/initializer, and the shell script in examples/shell. Each initializer has its own
// ServiceAccount. Many of them run as processes that are killed at random times.
//
// The author of each change is determined from two records: a watch that stores every version of
// every namespace, and the audit log of the API server.
package initializer
