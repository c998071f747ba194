// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mutation tests how the operator makes API servers inject: by policies, by webhooks, and by both while an API
// server is upgraded.
package mutation
