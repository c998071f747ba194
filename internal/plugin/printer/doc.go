// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package printer writes the output of kubectl nslifecycle: tables, trees, JSON and YAML
// documents, and lines that are updated in place on a terminal.
//
// The package escapes all text from a cluster, so that the text cannot control the terminal. Output
// to a pipe or a file has no colors and is never updated in place.
package printer
