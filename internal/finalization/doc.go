// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package finalization deletes the content of terminating namespaces, as the namespace controller of
// kube-controller-manager does: it discovers all resource types, deletes all objects in a safe order,
// and reports the remaining objects. [Finalizer.Sync] makes one pass over a namespace:
//
//	discover ──►  list all types ──► still same Namespace? ──no──► stop
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
// The namespace finalizer may be removed after a clean pass whose discovery and lists were
// requested after the grace period. A pass is clean if discovery was complete, every type was
// listed by a consistent read, no object remained and no request failed. After the grace period
// every API server has seen the deletion and admits no creation in the namespace, so an empty type
// stays empty. The package sharedlist explains why a list request for other namespaces is
// sufficient. Between passes, contentState keeps what is known:
//
//   - A type that is added or removed later, or that is suddenly not served, requires a full pass
//     over all types. So does a longer grace period, because earlier results confirm nothing, and an
//     interrupted pass, because its counts may be partial.
//   - While objects remain, only their types are listed again. When none remain, all types are
//     listed once more in the same pass: a webhook may have delayed a request that was admitted
//     before the deletion. The longer the namespace has been terminating, the more likely this is.
//   - Lists that are older than the pass are used only in the first pass, and in the one after the
//     grace period if the last one left no object. Otherwise the objects in them may have been
//     deleted before the pass watched them. Until the grace period ends, the lists must have been
//     requested after the deletion was first seen, so that they contain no object of an earlier
//     namespace with the same name.
//
// This does not cover a request that was admitted before the API server saw the deletion, and that
// is delayed for longer than the grace period: by a webhook, for which [DelayingWebhooks] extends it,
// or by a quota, a conversion webhook, encryption or etcd; types that cannot be listed; and an API
// server that does not check the namespace when it creates an object.
//
// # Why only objects of the terminating namespace are deleted
//
// Objects are listed by the name of their namespace, and the name can be used again: another
// controller may finalize the namespace during a pass, and a user may create a new one. So a pass
// lists first, reads the Namespace from the API server, and deletes the listed objects only if the UID
// of the Namespace is unchanged. Since UIDs are unique, the Namespace was the same at the time of the
// list, and all listed objects belong to it. Each object is deleted with its UID as precondition. This
// rules out deletecollection, which upstream uses, for all types that can be listed; concurrent
// deletion of single objects takes about half the time anyway.
package finalization
