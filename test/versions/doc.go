// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package versions tests initialization and finalization on the API server of one Kubernetes version,
// that of KUBEBUILDER_ASSETS: `make test-versions` runs it on each. The installation is the one that
// docs/versions.md describes for that API server.
package versions
