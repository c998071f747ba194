// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics contains the Prometheus metrics of the operator. controller-runtime adds further
// metrics. docs/reference/metrics.md lists all metrics; a test verifies the list.
//
// Only the leader runs the reconcilers, so only the leader changes the metrics, except build_info.
// No label contains the name of a namespace, because a cluster can have a large number of
// namespaces.
package metrics
