// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package finalization deletes the content of terminating namespaces, as the namespace controller of
// kube-controller-manager does: it discovers all resource types, deletes all objects in a safe order,
// and reports the remaining objects. [Finalizer.Sync] makes one pass over a namespace:
//
//	discover ──►  list all types ──► UID unchanged? ─────────no──► stop
//	                                          │ yes
//	                                          ▼
//	             ┌───────────────── delete pods ───────────────────┐
//	             │ deleted                                         │ remaining
//	             ▼                                                 │
//	      delete everything else ──────────────────────────────────┤ remaining
//	             │ deleted                                         │
//	             ▼                                                 │
//	      delete what other controllers need to finish ────────────┤ remaining
//	             │ deleted                                         ▼
//	             ▼                                      watch, requeue
//	   confirmed empty after a clean pass
//	   that began after the grace period
//
// # When a namespace is confirmed empty
//
// The namespace finalizer may be removed after a clean pass whose discovery and lists were requested
// after the grace period. A pass is clean if discovery was complete, every type was listed by a
// consistent read, no object remained and no request failed. After the grace period, every API
// server has seen the deletion and rejects create requests in the namespace, so an empty type stays
// empty. Package sharedlist explains why a list request for other namespaces is sufficient.
//
// Between passes, contentState keeps the known objects. These rules apply:
//
//   - A full pass over all types is required after a type is added, removed or no longer served. It
//     is also required if the grace period becomes longer, because earlier results then confirm
//     nothing, and after an interrupted pass, because the counts might be partial.
//   - While objects remain, only their types are listed again. When none remain, all types are
//     listed once more in the same pass: a webhook may have delayed a request that was admitted
//     before the deletion. The longer the namespace has been terminating, the more likely this is.
//   - Lists can be older than the pass in the first pass, and in the first pass after the grace period
//     if no object remained in the previous pass. In other passes, the objects in such a list might
//     have been deleted before the operator started to watch them. Until the grace period ends, lists
//     must have been requested after the deletion was first seen. Otherwise, they could contain objects
//     of an earlier namespace with the same name.
//
// The following can still create an object in a namespace that is confirmed empty:
//
//   - a request that was admitted before the API server saw the deletion, if a quota, a conversion
//     webhook, encryption or etcd delays the request for longer than the grace period;
//   - an API server that does not check the namespace when it creates an object.
//
// If an admission webhook can delay requests, the grace period is longer (see [DelayingWebhooks]).
// Remaining objects of types that cannot be listed are not detected.
//
// # Why only objects of the terminating namespace are deleted
//
// Objects are listed by namespace name, and a name can be reused: during a pass, another controller
// can finalize the namespace, and a user can create a new one with the same name. Therefore, a pass
// first lists the objects and then reads the Namespace from the API server. It deletes the listed
// objects only if the UID of the Namespace is unchanged. Since UIDs are unique, the Namespace was the
// same at the time of the list, and all listed objects belong to it.
//
// Each object is deleted with its UID as a precondition. This rules out deletecollection, which
// upstream uses, for all types that kube-apiserver stores. Deleting the objects individually but
// concurrently takes about half as long as a deletecollection request.
//
// # Aggregated API servers
//
// An aggregated API server can list objects that the namespace does not contain, or compute objects
// without a UID. If such objects remain after the DELETE requests and after the deletion of the other
// types of the stage, they are deleted with deletecollection, as upstream does, directly after the
// Namespace was read again. While the namespace finalizer is present, the namespace cannot be recreated. Whatever
// the server then lists still remains: no list with objects proves that the namespace is empty.
//
// Requests to these servers have no limit, and their lists are not shared, because they may
// implement both incorrectly.
//
// These servers may also not respond, for all namespaces or for some. Therefore, their requests are counted
// separately (see seats), and no batch of shared lists waits for them. A namespace whose requests get responses waits
// for other namespaces only if dozens of their requests of the same kind get none.
package finalization
