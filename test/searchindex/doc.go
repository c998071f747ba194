// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package searchindex tests examples/search-index. The suite installs nslifecycle on a real API
// server, and runs the two programs of the example as processes with the permissions in its
// manifests. A proxy between the two programs simulates typical failures of a service.
package searchindex
