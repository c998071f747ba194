// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package timeouts tests on a real API server what becomes of initializers that do not do their
// work: those whose time is over, those that no configuration names any more, and those that
// nobody may serve. The manager has the rights of its ServiceAccount.
package timeouts
