// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package finalizer holds Namespaces back that are being deleted, until something that is not in
// them has been put in order: an index in a search service, a bucket, an account.
//
// An agent owns a token in spec.finalizers of Namespaces, beside "kubernetes". A Namespace
// does not go before its last token. A [Func] does the work, and [Add] does the rest: it calls
// the function when a Namespace with the token is deleted, tries again after errors, tells in
// a condition of the Namespace what the matter is, and takes the token off once the function
// has returned nil. Any manager of controller-runtime will do; nothing of nslifecycle has to be
// installed.
//
//	err := finalizer.Add(mgr, "search.example.com/index",
//		func(ctx context.Context, namespace *corev1.Namespace) (finalizer.Result, error) {
//			return finalizer.Result{}, indices.Delete(ctx, string(namespace.UID))
//		})
//
// # What becomes of a Namespace
//
//	not deleted, or without the token ──▶ nothing
//	   │ deleted, with the token
//	   ▼
//	waits for its content, with AfterContent
//	   │
//	   ▼                   ┌─▶ NotYet        condition; again after the time, or on a change
//	the function is called ├─▶ other, panic  condition; again after a back-off
//	   ▲               │   └─▶ nil           the token is taken off
//	   └───────────────┘
//
// The token is never taken off but after the function has returned nil for this very
// Namespace, told by its UID. There is no way to say that it can never be done: who knows that
// nothing is left to do returns nil, and otherwise somebody has to look at it. Only the own
// token goes, all others stay in their order, and no write of anybody else is lost.
//
// The function is called again after a restart, unless the token had been taken off, and
// after an error; so it has to bear finding its work half done, or done. Its context ends when
// the program stops being the leader, or when the Namespace has gone or lost the token.
//
// # Where the token comes from
//
// A token that is put on late is none: the Namespace may be gone before. Put it on at birth:
// the field finalizer of an initializer in a NamespaceInitializerConfiguration,
// initializer.WithFinalizer, or spec.finalizers of the Namespace as its creator sends it.
// [AddFinalizer] puts it on whatever Namespaces there are, at once but not at birth.
//
// # Rights
//
// get, list and watch on namespaces, and update on namespaces/finalize, all at cluster scope.
// With patch on namespaces/status the condition is written; without it the log says once that
// it is not. [Check] looks for what is missing.
//
// # The condition
//
// Its type is the token. It is False while the Namespace is held: Retrying with the error,
// Panicked, Working where a call takes long, or the reason and message of [NotYet] and
// [Progress]. It is True with the [Result]
// once the token is off and others still hold the Namespace.
package finalizer
