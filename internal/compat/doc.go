// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package compat supports API servers that do not serve MutatingAdmissionPolicy v1: Kubernetes 1.30
// to 1.35. There the operator adds the pending list to new Namespaces, shortly after they were
// created, and only the policies of config/compat are installed.
//
// When these versions are no longer supported, delete this package, config/compat and the annotation
// injected-at.
package compat
