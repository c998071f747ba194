// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics tests the observability of the manager. It compares the metrics and logs with the
// documentation, and tests the alerts and the dashboard with the metrics of a real run. The suite
// runs the manager's binary with the permissions of its ServiceAccount, and evaluates the queries
// with promtool.
package metrics
