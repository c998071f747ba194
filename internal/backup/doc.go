// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package backup converts a namespace to YAML that kubectl apply accepts in any cluster.
//
// Collect reads the objects. Everything else is pure: Clean removes the fields that the cluster has
// set, skipReason identifies the objects that the cluster recreates, and the objects are sorted so
// that a single kubectl apply can create all of them. Objects that could not be read are part of
// the result, because an incomplete backup must not look complete.
//
// A backup does not contain the data in volumes. It is not a snapshot, because types are read one
// after another.
package backup
