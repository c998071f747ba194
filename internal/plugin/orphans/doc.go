// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package orphans finds and deletes objects whose namespace does not exist.
//
// An object is an orphan if it exists both before and after its namespace is found missing, with
// the same UID. Objects that are deleted together with their namespace do not exist afterwards, and
// objects in a new namespace with the same name have another UID.
package orphans
