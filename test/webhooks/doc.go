// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhooks tests what the API server asks the manager: whether writes are held until a namespace is
// initialized, and whether NamespaceTemplates are valid. It attacks the webhook server as any Pod can.
package webhooks
