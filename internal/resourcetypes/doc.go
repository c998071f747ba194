// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resourcetypes discovers the namespaced resource types of an API server and lists the metadata
// of their objects.
//
// Failures are part of the results, because diagnosis and force-finalization must work in a
// partially failing cluster. Package finalization uses only the parser of this package: to confirm
// that a namespace is empty, it needs complete results, and it shares them among namespaces.
package resourcetypes
