// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controlplane runs a real kube-apiserver and etcd with RBAC, installs this project with
// kubectl as users do, and runs the manager with the permissions of its own ServiceAccount. The
// tests, the benchmarks and the demo share it.
//
// There are no kubelets and, unless a test starts it, no kube-controller-manager: no Pods run, and
// only this project processes namespaces.
package controlplane
