// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package install tests the ways of installing and removing this project, with the commands
// of docs/install.md: kubectl apply -k, the manifest in dist/install.yaml and the Helm chart
// in dist/chart. They have to give the same objects, and whichever way is gone back leaves a
// cluster in which namespaces come and go.
//
// Helm does not wait for Pods here: there is no kubelet. The manager runs in the test, with
// the rights that the installation gives it.
package install
