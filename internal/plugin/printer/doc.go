// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package printer writes the output of kubectl nslifecycle: tables, trees, JSON and YAML
// documents, and lines that are updated in place on a terminal.
//
// All text from a cluster is escaped before it is written, so that it cannot control the
// terminal. Output to a pipe or a file has no colors and is never updated in place.
package printer
