// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plugin tests kubectl nslifecycle as people run it: the binary, started by a
// stock kubectl, against real API servers with and without the operator.
package plugin
