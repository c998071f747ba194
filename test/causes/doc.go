// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package causes tests the diagnosis against a real API server and namespace controller. Each spec
// blocks the deletion or initialization of a namespace in one way. It expects a finding with the
// correct cause and objects, and no other cause at any time. It runs the recommended commands,
// resolves the cause, and expects that the namespace is then deleted or initialized.
package causes
