// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package initializer shows what initializers can rely on, against the real API server:
// those that are written with pkg/initializer, and the one in shell of examples/shell. They
// run under ServiceAccounts of their own, and many as processes that are killed at any
// moment.
//
// Two witnesses say who did what: a watch that keeps every version of every namespace, and
// the audit log of the API server, which knows who has made it.
package initializer
