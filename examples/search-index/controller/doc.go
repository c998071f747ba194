// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controller creates an index in the search service for each Namespace, before users can
// write to the Namespace, and deletes it after the content of the Namespace.
//
//	initializer search.corp.example.com                  creates the index
//	(when the Namespace is Initialized)                  adds the first document
//	namespace finalizer search.corp.example.com/index    deletes the index
//
// The Namespace has the finalizer before the index is created, so no index is leaked. The service
// records the UIDs of deleted indices, and rejects a delayed request to create such an index again.
package controller
