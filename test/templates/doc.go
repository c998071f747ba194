// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package templates tests the admission policies for NamespaceTemplates against a real API server. No
// manager is running: the specs write the NamespaceInitializerSet.
package templates
