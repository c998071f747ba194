// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package createdlist records which namespaces the plugin has created in a cluster, for users who cannot list
// namespaces.
//
// Each namespace has a file of its own, so that concurrent commands do not overwrite each other's changes, and an
// invalid file concerns only one namespace. The file contains the UID of the namespace.
package createdlist
