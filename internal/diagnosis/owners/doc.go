// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package owners searches the facts of a diagnosis for evidence of the owners of finalizers, and of
// the identities that may initialize a namespace. The evidence shows whether they are running. The
// package sends no requests.
//
// This package matches and ranks evidence. Package rules decides what the evidence means.
package owners
