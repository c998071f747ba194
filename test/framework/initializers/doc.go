// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package initializers runs small initializers for tests, benchmarks and the demo. Each initializer
// has its own permissions. It watches namespaces, initializes them, and removes its name from the
// pending list. The package uses only client-go, like an initializer that does not use
// pkg/initializer.
package initializers
