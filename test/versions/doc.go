// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package versions tests the whole life of namespaces on the API server of one Kubernetes
// version, that of KUBEBUILDER_ASSETS: `make test-versions` runs it on each. What is
// installed is what docs/versions.md says for that API server.
package versions
