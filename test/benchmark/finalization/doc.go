// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Command finalization measures how fast namespaces end, and at what cost, with the
// namespace controller of kube-controller-manager and with nslifecycle, and prints tables
// (make bench-finalization).
//
// # In turn, on one API server
//
// There is one control plane. The peer, kube-controller-manager with its namespace
// controller alone, and ours, the manager with finalization alone, work on it in turn and
// never at the same time. Each case is measured in rounds, and the order changes from one
// round to the next, so that a slow drift favours neither. A measurement goes like this:
//
//  1. The harness creates namespaces with content.
//  2. It starts the controller, and creates and deletes a namespace to warm it up: its
//     caches are full then, and its discovery is done.
//  3. It waits until the API server has no more requests than while idle.
//  4. It deletes the namespaces, 32 requests at a time, and waits for them to go.
//  5. It waits as in 3, and stops the controller.
//
// Time is taken by one clock, the harness's, from before the first DELETE until a watch
// delivers the event that the last namespace is gone.
//
// # Requests
//
// The number of requests is what the API server counts itself, the difference of
// apiserver_request_total between 3 and 5. A watch is counted there when it ends; here it
// counts when it begins. What the harness sends in between is taken off: its DELETEs, the
// patches that take finalizers off, the requests of its kubelet. The API server's own
// requests, such as those for its Lease, are still in there. How many there are while
// nothing happens is measured once and printed.
//
// # Identities
//
// nslifecycle waits longer where there is more than one API server. The second one is a
// Lease in kube-system like those by which API servers tell that they live; nobody serves
// anything behind it. The peer does not look at it.
//
// # Limits
//
// With --limits ours alone is measured, with several limits of requests. From the first
// DELETE until the last namespace is gone another client reads and writes a ConfigMap, and
// the time that its requests take is measured as well, once also while nothing is deleted.
//
// # Fairness
//
// Each controller has the identity and rights that it has in a cluster: the peer is
// system:kube-controller-manager and uses the ServiceAccounts of its controllers, ours is
// its own ServiceAccount with the generated ClusterRole. Both have their default limits of
// requests. Nothing but that ClusterRole is installed: no CRDs and no policies of ours.
// No other controller runs: there are no ReplicaSets, no ServiceAccounts and no garbage
// collection. Pods are ended by a small kubelet in the harness, which takes all of their
// grace period.
package main
