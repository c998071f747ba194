// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package harness is what the benchmarks have in common: processes that run beside them
// and what those cost, statistics, tables, and what there is to say about the machine.
package harness
