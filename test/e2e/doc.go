// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e contains the tests that require a cluster with nodes: the Deployment of config/default
// with two Pods, and the main scenarios of initialization and finalization with real Pods and the
// built-in controllers.
//
// The suite installs config/default in the cluster that KUBECONFIG specifies, and removes it
// afterwards. It fails if nslifecycle is already installed. The specs have the build tag e2e, so
// that `go test ./...` does not require a cluster; `make test-e2e` builds and loads the image, and
// runs the specs.
package e2e
