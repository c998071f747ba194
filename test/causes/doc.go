// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package causes tests the diagnosis against a real API server and namespace controller. Each
// spec blocks the deletion or initialization of a namespace in one way. It expects a finding
// with the right cause and objects and no other cause at any time, runs the recommended
// commands, and expects the namespace to be deleted once the cause is resolved.
package causes
