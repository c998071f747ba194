// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package indexserver is a small search service: indices that documents are put into and
// searched for, over HTTP, with a directory as storage. It stands for the systems outside
// of a cluster that have to know of a namespace.
//
//	PUT    /indices/{name}                {"namespace": "shop", "uid": "..."}
//	GET    /indices/{name}
//	DELETE /indices/{name}?uid=...
//	GET    /indices
//	POST   /indices/{name}/documents      {"id": "...", "text": "...", "fields": {...}}
//	GET    /indices/{name}/_search?q=...
//	GET    /healthz
//
// Every write may be made again: a caller who has not seen the answer has to. An index
// belongs to one Namespace, by its UID. A PUT for another UID is refused with 409, so that
// a namespace that is created again never gets what belonged to the one before.
//
// A DELETE is for good: the server remembers the UID, and a PUT for it gets 410 from then
// on. Otherwise a slow PUT that overtakes nothing, and arrives after the DELETE, would
// leave an index behind that nobody knows of any more.
//
// What has been answered is on disk. A server that is killed comes back with it, and with
// nothing that is half-written.
package indexserver
