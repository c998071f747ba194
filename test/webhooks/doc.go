// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhooks tests what the API server asks the manager: whether writes are held until a namespace is
// initialized, whether NamespaceTemplates are valid, and what a new namespace gets, by policies or by webhooks. It
// attacks the webhook server as any Pod can.
package webhooks
