// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package binary builds the programs of this project the way that a release needs them, and
// says what they are made of.
//
// The same sources, Go release and version give the same binary, byte for byte: it holds
// neither paths nor the state of version control, and is linked without cgo.
package binary
