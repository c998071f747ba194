// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package verify reports whether API servers enforce the effective set: whether the admission policies are installed,
// or the webhooks that replace the mutating ones (package inject), and whether new Namespaces get the initializers. It
// only reads, and creates Namespaces as dry runs. It finds the policies by their label, because their names can have
// an installation-specific prefix.
package verify
