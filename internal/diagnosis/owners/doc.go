// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package owners finds evidence in the facts of a diagnosis of who is responsible for a finalizer or
// may initialize a namespace, and of whether they are running. It makes no requests.
//
// Rules decide what the evidence means. Only this package matches and ranks evidence.
package owners
