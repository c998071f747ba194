// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package versions tests initialization and finalization with the API server in KUBEBUILDER_ASSETS.
// `make test-versions` runs the suite with each supported Kubernetes version. The suite installs the
// operator as docs/versions.md describes for that version.
package versions
