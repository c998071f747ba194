// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics tests what can be seen of the manager from outside: its metrics and logs
// against the documentation, and the alerts and the dashboard against the metrics of a real
// run. The manager is the real program with the rights of its ServiceAccount, and Prometheus'
// own promtool evaluates the queries.
package metrics
