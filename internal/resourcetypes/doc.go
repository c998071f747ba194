// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resourcetypes discovers the namespaced resource types of an API server and lists their
// objects as metadata.
//
// Failures are part of the results, since diagnosis, force-finalization and backup must work with a
// partly failing cluster. Package finalization shares the parser only: to confirm that a namespace
// is empty it needs complete results, shared by many namespaces.
package resourcetypes
