// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package harness contains the code that the benchmarks share: main, child processes and their resource
// usage, the metrics of the API server, CustomResourceDefinitions, statistics, tables, and a
// description of the machine.
package harness
