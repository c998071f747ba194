// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e tests what requires a cluster with nodes: the Deployment of config/default with two
// Pods, and the main scenarios of initialization and finalization with real Pods and with the
// built-in controllers.
//
// It installs config/default into the cluster of KUBECONFIG, and removes it again. It fails if the
// cluster already has an installation. Its specs have the build tag e2e, so that `go test ./...`
// does not require a cluster; `make test-e2e` builds the image, loads it and runs them.
package e2e
