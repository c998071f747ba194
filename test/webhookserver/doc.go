// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhookserver attacks the webhook server of a manager process as any Pod can, and measures the memory of
// the manager, while namespaces are initialized, writes held, and namespaces finalized.
package webhookserver
