// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controlplane runs a real kube-apiserver and etcd with RBAC on, installs this
// project into it with kubectl as any user would, and runs the manager there with the
// rights of its own ServiceAccount. The tests, the benchmarks and the demo share it.
//
// There are no kubelet and, unless a test starts it, no kube-controller-manager: nothing
// runs Pods, and nothing but this project looks after namespaces.
package controlplane
