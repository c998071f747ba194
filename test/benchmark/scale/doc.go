// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Command scale measures how the cost of nslifecycle grows with the number of namespaces (make
// bench-scale).
//
// One control plane has CustomResourceDefinitions, one NamespaceTemplate with four objects, and one
// initializer that does nothing. The manager runs with its ServiceAccount, its generated ClusterRole
// and its default flags. The number of namespaces grows step by step, each with its template objects
// and other ConfigMaps. At each step, when the API server and the manager are idle, the benchmark
// measures:
//
//   - the manager while nothing changes: memory, goroutines, watches, requests and processor time per
//     second;
//   - a number of creations at once, until each namespace is initialized;
//   - a change of the template, until all namespaces have it;
//   - the same number of deletions at once, until each namespace is removed.
//
// Requests are those of the manager, from its own metrics, Leases included. Its watches are the
// difference between the watches that the API server serves with and without the manager. Live heap
// is that of the last garbage collection. Costs are per namespace, without the requests and the
// processor time of the same period while nothing changes. The processor time of the API server
// includes the requests and the watches of the benchmark and of the initializer.
//
// The exponent is the slope of the least-squares fit of the logarithms of a value and of the number
// of namespaces: 0 means that the value is constant, 1 that it is proportional.
//
// With --churn, the benchmark then creates and deletes namespaces at a constant rate and samples the
// manager.
package main
