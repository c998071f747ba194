// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package initializers runs small initializers for the tests, the benchmarks and the demo. They are
// clients with their own permissions that watch for namespaces, initialize them, and remove their name from
// the pending list. The package uses client-go only, like an initializer that is written without
// pkg/initializer.
package initializers
