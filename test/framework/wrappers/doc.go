// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package wrappers builds test objects, so that a test sets only the fields that it depends on.
package wrappers
