// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plugin tests the binary of kubectl nslifecycle. An unmodified kubectl runs the plugin
// against API servers with and without the operator.
package plugin
