// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controller gives each Namespace an index in the search service. It is made before
// anybody can use the Namespace, and it goes when everything else in the Namespace has gone.
//
//	initializer search.corp.example.com        makes the index
//	(when the Namespace is ready)              writes the first document into it
//	agent search.corp.example.com/index        deletes it
//
// The agent's token is on the Namespace before the index is made, so there is never an index
// that nobody would delete. A request to make one that is still on its way when the agent
// deletes it does no harm either: the service takes none for a UID that it has deleted.
package controller
