// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package templates contains specs for the objects of NamespaceTemplates in new and existing Namespaces.
package templates
