// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package finalizer tests pkg/finalizer against a real API server with only the documented
// permissions. This project is not installed.
package finalizer
