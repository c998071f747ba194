// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package install tests the ways to install and remove this project, with the commands
// of docs/install.md: kubectl apply -k, the manifest in dist/install.yaml and the Helm chart
// in dist/chart. All of them must install the same objects, and after the removal namespaces can be
// created and deleted.
//
// Helm does not wait for Pods, since no kubelet runs. The manager runs in the test process, with
// the permissions of the installation.
package install
