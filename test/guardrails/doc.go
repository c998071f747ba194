// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package guardrails tests deletion protection and expiry on a real API server, with
// unprivileged users and a manager with the permissions of its ServiceAccount.
package guardrails
