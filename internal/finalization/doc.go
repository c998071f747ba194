// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package finalization empties namespaces that are being deleted. It owns what the
// namespace controller of kube-controller-manager does with a namespace's content:
// discovering every type, deleting every object in a safe order, and telling what
// remains and why. It knows nothing about controllers and queues.
//
// One pass over a namespace:
//
//	discover ──► list every type ──► is it still the same namespace? ──no──► stop
//	                                          │ yes
//	                                          ▼
//	             ┌───────────────── delete the pods ───────────────┐
//	             │ gone                                            │ remain
//	             ▼                                                 │
//	      delete everything else ──────────────────────────────────┤ remain
//	             │ gone                                            │
//	             ▼                                                 │
//	      delete what others need in order to go ──────────────────┤ remain
//	             │ gone                                            ▼
//	             ▼                                      wait, and pass again
//	        a clean pass
//
// # When the token may be released
//
// A namespace may be finalized after a pass that is clean and began after the settling
// time. Clean means that discovery was complete and taken after the settling time too,
// that every type was listed by a consistent read, that nothing was left in any of them,
// and that nothing went wrong. From the settling time on every API server has seen the
// deletion and creates nothing more in the namespace, so what is empty once stays empty.
//
// # Why nobody else's objects are deleted
//
// Objects are listed by the name of their namespace, and a name can be used again: while
// one controller works on a namespace, another may finish it and a user may create it
// anew. So a pass lists first, then reads the Namespace from storage, and deletes what it
// has listed only if the Namespace is still the one it works on. Since a UID never comes
// back, the Namespace was the same when the list was made, and so everything in the list
// belongs to it. Each object is deleted with its UID as precondition. That rules out
// deletecollection, which upstream uses, wherever objects can be listed. It is no loss:
// deleting objects one by one and side by side takes less than half the time.
package finalization
