// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controlplane runs a real kube-apiserver and etcd with RBAC, installs this project with
// kubectl as users do, and runs the manager with the permissions of its own ServiceAccount. The
// tests, the benchmarks and the demo use it.
//
// No kubelet runs, so no Pods run. Unless a test starts kube-controller-manager, only this project
// processes namespaces.
package controlplane
