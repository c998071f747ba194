// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package confinement tests config/confine on a real API server. The operator's ServiceAccounts are cluster
// administrators here, so that only the policy refuses their requests.
package confinement
