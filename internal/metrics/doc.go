// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics contains the Prometheus metrics of the operator, in addition to those of
// controller-runtime. docs/reference/metrics.md lists all of them, which a test verifies.
//
// Only the leader runs the reconcilers, so only the leader changes the metrics, except build_info.
// No label contains the name of a namespace: a cluster may have very many namespaces.
package metrics
