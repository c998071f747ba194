// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package backup converts a namespace to YAML that kubectl apply accepts in any cluster.
//
// Collect reads the objects. The other functions send no requests: Clean removes the fields that
// the cluster has set, skipReason identifies the objects that the cluster recreates, and
// sortObjects sorts the objects so that a single kubectl apply can create all of them. The result
// lists objects that could not be read, because an incomplete backup must not look complete.
//
// A backup does not contain the data in volumes. It is not a snapshot, because resource types are
// not read at the same time.
package backup
