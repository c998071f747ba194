// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package finalizer tests pkg/finalizer against a real API server, with the documented permissions
// only and without an installation of nslifecycle.
package finalizer
