// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package templatewebhook tests the admission webhook for NamespaceTemplates with kubectl, a manager and a
// real API server.
package templatewebhook
