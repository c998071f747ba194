// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package binary builds the programs of this project for a release, and lists their modules.
//
// The same sources, Go release and version result in an identical binary: it contains neither paths
// nor version control information, and is linked without cgo.
package binary
