// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package guardrails tests protection from deletion and expiry on a real API server: as
// users with few rights, and with a manager that has those of its ServiceAccount.
package guardrails
