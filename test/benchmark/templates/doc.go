// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Command templates compares NamespaceTemplates with Kyverno and a bare client (make bench-templates).
//
// # Contenders
//
// Each contender creates the same four objects in each namespace: a LimitRange, a ResourceQuota, a
// NetworkPolicy that denies all ingress, and a RoleBinding for the creator.
//
//   - The bare client watches namespaces and applies the objects with server-side apply, with 32
//     workers. It sends no other requests: no controller can be much faster. It repairs nothing.
//   - Kyverno has one GeneratingPolicy that keeps the objects in sync. Its admission controller and its
//     background controller run with the flags, the environment and the permissions in its own
//     manifest. Only the addresses differ: the API server calls the webhooks of a local process.
//   - "Raised limits" is Kyverno with --clientRateLimitQPS=1000 --clientRateLimitBurst=2000 and, for
//     the background controller, --genWorkers=32.
//   - nslifecycle has one NamespaceTemplate. The manager runs with its ServiceAccount, its generated
//     ClusterRole and its default flags.
//
// A process that exits is restarted at once the first time, and then after 10 s, 20 s and so on, as
// by a kubelet. Its processor time and memory are included.
//
// # Method
//
// The contenders take turns, each on a new control plane, so that only one is running at any time.
// The first turn of each contender measures everything but namespaces that are created at once. Each
// of their numbers has its own turn. With --rounds, the order of the contenders changes from one
// round to the next. Before a turn, each contender handles three namespaces in succession.
//
// A user who can only create namespaces and ConfigMaps creates the namespaces. Times are from before
// the POST until a watch delivers the last of the four objects and, with nslifecycle, the namespace
// without the label of initializing namespaces: with other controllers, the creator can write at
// once. All wait policies are "Applied", except in the case "enforced", in which kube-controller-manager
// runs and nslifecycle waits until it has set the status of the quota.
//
// Requests are the increase of apiserver_request_total without Leases and without the benchmark's own
// requests. Processor time is measured until the API server and the controller are idle again.
//
// An early write is a ConfigMap with a smaller resourceVersion than the quota or the NetworkPolicy.
//
// # Changes
//
// For the case "changed", the limit of Pods changes in the template. The time is that until all
// namespaces have it. Meanwhile, the benchmark creates namespaces one by one.
package main
