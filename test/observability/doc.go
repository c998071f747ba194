// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package observability compares the metrics and log lines of a running manager with the documentation,
// the alerts, the runbooks and the dashboard. Two rounds of namespaces pass through all states.
package observability
