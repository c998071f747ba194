// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics tests the observability of the manager: its metrics and logs
// against the documentation, and the alerts and the dashboard against the metrics of a real
// run. It runs the manager's binary with the permissions of its ServiceAccount, and evaluates
// the queries with promtool.
package metrics
