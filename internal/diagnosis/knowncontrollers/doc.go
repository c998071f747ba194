// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package knowncontrollers contains facts about widely used controllers that add finalizers: their
// finalizers, workloads, permissions and conditions. The facts are data, and each fact names the file
// in the repository of the controller that it was read from.
//
// A fact identifies the controller that is responsible for a finalizer. Whether the controller is
// running is not a fact of this package.
package knowncontrollers
