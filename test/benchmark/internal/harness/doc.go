// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package harness contains the code that the benchmarks share: child processes and their resource
// usage, statistics, tables, and a description of the machine.
package harness
