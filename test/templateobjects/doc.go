// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package templateobjects contains specs for the operator's part of NamespaceTemplates: the objects in
// new and existing Namespaces. Package templates contains the specs for the admission policies.
package templateobjects
