// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package indexserver is a small search service over HTTP that stores its data in a directory. It
// is an example of an external system that has resources for each Namespace.
//
//	PUT    /indices/{name}                {"namespace": "shop", "uid": "..."}
//	GET    /indices/{name}
//	DELETE /indices/{name}?uid=...
//	GET    /indices
//	POST   /indices/{name}/documents      {"id": "...", "text": "...", "fields": {...}}
//	GET    /indices/{name}/_search?q=...
//	GET    /healthz
//
// Every write is idempotent, since a client that has not received the response must retry. An index
// belongs to one Namespace, identified by its UID. The server responds to a PUT with another UID
// with 409, so that a recreated Namespace never gets the index of the previous one.
//
// The server records the UID of each DELETE for a day, and rejects a later PUT with 410. Otherwise
// a delayed PUT that arrives after the DELETE would leak an index.
//
// The server writes to disk before it responds. After a crash, the data contains all acknowledged
// writes and no partial writes.
package indexserver
