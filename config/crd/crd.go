// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package crd contains the CustomResourceDefinitions for clients that validate objects without an API
// server.
package crd

import _ "embed" // for the manifests

// NamespaceTemplates is the manifest of the CustomResourceDefinition of NamespaceTemplates.
//
//go:embed bases/nslifecycle.dev_namespacetemplates.yaml
var NamespaceTemplates []byte
