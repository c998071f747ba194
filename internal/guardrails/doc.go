// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package guardrails reports whether API servers enforce the optional policies in config/protection and config/expiry,
// without which the labels and annotations of users have no effect.
package guardrails
