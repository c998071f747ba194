// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package framework sets up suites that run against a real API server: a control plane with
// config/default installed, a manager with the permissions of its ServiceAccount, and users with
// and without the "initialize" verb. If an operation fails, its helpers fail the current spec.
package framework
