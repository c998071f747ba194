// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package templates renders and compares NamespaceTemplates for the commands of the plugin.
//
// Reading files and rendering need no API server. [Compare] computes what the operator would change in each Namespace
// with its packages observe and plan, as if all objects were as the Namespaces record them. For a few of these changes,
// [DryRunner] reads the objects, and performs the exchanges of the operator with server-side dry runs, which package
// execute sends.
package templates
