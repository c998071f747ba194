// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package initializer tests initializers against a real API server: those that use pkg/initializer,
// and the shell script in examples/shell. They run with their own ServiceAccounts, many of them as
// processes that are killed at random.
//
// Two recorders identify the author of each change: a watch that keeps every version of every
// namespace, and the audit log of the API server.
package initializer
