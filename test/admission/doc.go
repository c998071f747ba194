// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admission verifies what a real API server admits, changes and denies. Package cases contains requests whose
// results must equal those of the Go implementation of the rules.
package admission
