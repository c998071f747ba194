// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package finalization empties namespaces that are being deleted. It owns what the
// namespace controller of kube-controller-manager does with a namespace's content:
// discovering every type, deleting every object in a safe order, and telling what
// remains and why. It knows nothing about controllers and queues.
//
// One pass over a namespace:
//
//	discover ──►  list the types ──► is it still the same namespace? ──no──► stop
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
// A namespace may be finalized after a pass that is clean and goes by answers that were
// asked for after the settling time. Clean means that discovery was complete and asked for
// after the settling time too, that every type was listed by a consistent read, that
// nothing was left in any of them, and that nothing went wrong. From the settling time on
// every API server has seen the deletion and creates nothing more in the namespace, so what
// is empty once stays empty.
//
// # Why a shared answer is a proof
//
// The surveyor asks each type once for many namespaces, and the Ledger keeps what it has
// learnt from one pass to the next. That a namespace is empty follows all the same:
//
//   - Lists are consistent reads. Without a resourceVersion the answer is at least as new
//     as the moment when the request reached the API server, and all pages of one list show
//     the same moment. So an answer is dated by when it was asked for, never by when it
//     came, and a list that could not be read to its end is no answer.
//   - What was asked for after the settling time misses nothing: no API server admits a
//     creation in the namespace any more, so no object can come after the moment that the
//     list shows.
//   - A list of the whole cluster has all objects of each namespace. Where it has none of
//     a namespace, that one is empty, and where it has none at all, all are. It does not
//     matter who asked, or in what pass.
//   - Types may be looked at each at its own time within a pass, since emptiness lasts: of
//     two types that were found empty one after the other, both are empty after the second
//     look.
//   - The types are all there are: discovery was complete, and asked for after the settling
//     time. A type that comes or goes later, or is not served all at once, means another
//     survey. So does a settling time that has grown, since answers from before its end
//     prove nothing, and a pass that was cut short, since it may have counted in part.
//   - While something is left, only the types with something left are looked at. When
//     nothing is left any more, all types are surveyed once more in the same pass: emptiness
//     lasts by the rules, but a request that was admitted before the deletion and that a
//     webhook has held since breaks them, and the longer a namespace waits, the more likely
//     that is.
//
// An answer that is older than the pass that uses it is no less of a proof, but what it
// shows may have gone meanwhile, and the event that told so may have come before anybody
// waited for it. So older answers are used only where nothing can be missed: in the first
// pass, and in the one after the settling time if the last one has left nothing. Before the
// settling time they have to be from after the deletion was seen, so that nothing in them is
// from another namespace of the same name; nothing is proven by them.
//
// Lists of the whole cluster are relied on only for types that kube-apiserver serves
// itself. An aggregated API server need not be written with them in mind.
//
// This does not cover a request that was admitted before the API server saw the deletion, and that
// is delayed for longer than the grace period: by a webhook, for which DelayingWebhooks extends it,
// or by a quota, a conversion webhook, encryption or etcd; types that cannot be listed; and an API
// server that does not check the namespace when it creates an object.
//
// If the API server throttles a list request, with 429, the type counts as one that could not be
// listed.
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
// deleting objects one by one and side by side takes about half the time.
package finalization
