// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Command finalization measures the speed and cost of finalizing namespaces with the namespace
// controller of kube-controller-manager and with nslifecycle, and prints tables
// (make bench-finalization).
//
// # Method
//
// The controllers are called "peer" and "ours": the peer is kube-controller-manager with only its
// namespace controller, and ours is the nslifecycle manager with only its finalization controller.
// They run on one control plane in turns, never at the same time. Each case is measured in rounds.
// The order of the controllers changes from one round to the next, so that slow drift favors
// neither. The steps of a measurement are:
//
//  1. The harness creates namespaces with content.
//  2. It starts the controller, and creates and deletes a namespace to warm it up: this fills its
//     caches and completes its discovery.
//  3. It waits until the API server serves no more requests than while idle.
//  4. It deletes the namespaces with 32 concurrent requests, and waits for their removal.
//  5. It waits as in step 3, and stops the controller.
//
// The harness measures the time from before the first DELETE until a watch delivers the removal of
// the last namespace.
//
// # Other namespaces
//
// In some cases, other namespaces are deleted first, and their finalization takes long. The harness
// measures only an empty namespace, which the controller should finalize as if it were alone. The
// goals therefore compare these cases with the case empty of the same controller.
//
// For two cases, an aggregated API server runs in the harness. It serves one type without objects,
// and only legacy discovery. In the case beside-hanging-api, it does not respond to requests that
// list or delete objects in the other namespaces until the measured namespace is removed, which is
// deleted directly after them. In the case slow-discovery, it responds to discovery requests after
// 4 s; the API server waits for at most 5 s. The API server sends these requests in the background.
// The controllers request aggregated discovery, to which the API server responds from its cache, so
// their requests are not slow. The API server does not count the requests that it forwards.
//
// # Bare client
//
// For empty namespaces, the benchmark also measures a client that sends only the requests that no
// namespace controller can avoid. After the grace period of the last namespace, it lists each type
// once, and then sends one request to /finalize for each namespace. The client runs in the harness.
//
// # Requests
//
// The number of requests is the increase of apiserver_request_total between steps 3 and 5. The API
// server counts a watch when it ends, but the benchmark counts it when it starts. The harness
// subtracts its own requests: the DELETEs, the patches that remove finalizers, and the requests of
// its kubelet. The API server's own requests, such as those for its Lease, are included. The number
// of requests while idle is measured once and printed.
//
// # Identities
//
// nslifecycle waits longer if there is more than one API server. The benchmark simulates the second
// API server with a Lease in kube-system, like the Leases that API servers renew as heartbeats. The
// peer ignores the Lease.
//
// # Fairness
//
// Each controller has the same identity and permissions as in a real cluster. The peer is
// system:kube-controller-manager and uses the ServiceAccounts of its controllers. nslifecycle uses
// its ServiceAccount with the generated ClusterRole. The peer has its default rate limit. The
// project's CRDs and policies are not installed. No other controller runs: there are no
// ReplicaSets, no ServiceAccounts and no garbage collection. A small kubelet in the harness
// terminates Pods after their full grace period.
package main
