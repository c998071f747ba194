// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e holds what can only be shown on a cluster with nodes: the Deployment of
// config/default at work as two Pods, and the main stories of a namespace's birth and death
// with real Pods in it and the built-in controllers around it.
//
// It takes the cluster that KUBECONFIG names, installs into it by `kubectl apply -k
// config/default`, and removes that again. A cluster that has an installation already is
// refused. Its specs have the build tag e2e, so that `go test ./...` does not look for a
// cluster; `make test-e2e` builds the image, loads it and runs them.
package e2e
