// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package orphans finds and deletes objects whose namespace does not exist.
//
// An object is an orphan if it existed before its namespace was found missing, and still exists
// afterwards with the same UID. So it is neither an object that is deleted together with its
// namespace nor one that was created in a new namespace with the same name.
package orphans
