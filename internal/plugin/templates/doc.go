// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package templates renders, tests and compares NamespaceTemplates for the commands of the plugin.
//
// Reading files, rendering and golden tests need no API server. [Compare] computes what the operator
// would change in each Namespace with the functions of the operator in package plan, as if all objects were as the
// Namespaces record them. For a few of these changes, [DryRunner] reads the objects, and performs the exchanges of the
// operator with server-side dry runs.
package templates
