// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package printer writes the output of kubectl nslifecycle: tables, trees, and JSON and YAML
// documents.
//
// The package escapes all text from a cluster, so that the text cannot control the terminal. Output
// to a pipe or a file has no colors.
package printer
