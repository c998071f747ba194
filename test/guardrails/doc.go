// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package guardrails tests deletion protection and expiry against a real API server. The users are
// unprivileged, and the manager has the permissions of its ServiceAccount.
package guardrails
