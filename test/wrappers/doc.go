// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package wrappers builds the objects that tests work with, so that a test names only
// what matters to it.
package wrappers
