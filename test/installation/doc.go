// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package installation tests the ways to install and uninstall this project, with the commands in
// docs/install.md: kubectl apply -k, the manifest dist/install.yaml and the Helm chart dist/chart.
// Each way must install the same objects. After each uninstallation, it must be possible to create
// and delete namespaces.
//
// Helm does not wait for Pods, because no kubelet runs. The manager runs in the test process with
// the permissions of the installation.
package installation
