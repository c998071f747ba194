// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package finalizer tests package agent against a real API server, as somebody uses it who has
// installed nothing of nslifecycle and given the agent no more than its rights.
package finalizer
