// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package compat supports API servers that do not serve MutatingAdmissionPolicy v1: Kubernetes 1.30
// to 1.35. On these API servers, the operator adds the pending list to new Namespaces shortly after
// they are created, and only the policies in config/compat are installed.
//
// When these versions are no longer supported, delete this package, config/compat and the
// annotation injected-at.
package compat
