// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package binary builds the programs of this project for a release, and describes their modules.
//
// The same sources, Go release and version result in an identical binary: it contains neither paths
// nor the state of version control, and is linked without cgo.
package binary
