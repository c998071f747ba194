// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package templates renders, tests and compares NamespaceTemplates for the commands of the plugin.
//
// Reading files, rendering and golden tests need no API server. [Compare] computes what the operator
// would change in each Namespace from what the Namespaces record, without reading any object.
// [DryRunner] adds the result of server-side dry runs to a few of these changes.
package templates
