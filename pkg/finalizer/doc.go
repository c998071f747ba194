// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package finalizer runs a cleanup function for each Namespace that is being deleted, and holds the
// Namespace until the function has succeeded. Use it for resources outside the Namespace, such as
// an index in a search service, a bucket or an account.
//
// The program owns a namespace finalizer: an entry of spec.finalizers, in addition to "kubernetes".
// The API server deletes a Namespace only when spec.finalizers is empty. [Add] calls a [Func] when
// a Namespace with the finalizer is deleted, retries after errors, reports progress in a condition
// of the Namespace, and removes the finalizer when the function returns nil. It works with any
// controller-runtime manager, and does not require nslifecycle to be installed.
//
//	err := finalizer.Add(mgr, "search.example.com/index",
//		func(ctx context.Context, namespace *corev1.Namespace) (finalizer.Result, error) {
//			return finalizer.Result{}, indices.Delete(ctx, string(namespace.UID))
//		})
//
// # Life cycle
//
//	not being deleted, or without the finalizer ──▶ nothing to do
//	   │ deletionTimestamp is set, finalizer is present
//	   ▼
//	waits for the content to be deleted, with AfterContent
//	   │
//	   ▼                   ┌─▶ NotYet              condition; called again after the duration or on a change
//	the function is called ├─▶ other error, panic  condition; called again with backoff
//	   ▲               │   └─▶ nil                 the finalizer is removed
//	   └───────────────┘
//
// The finalizer is removed only after the function has returned nil for the Namespace with this
// UID. There is no permanent failure: return nil if there is nothing left to do, and an error if an
// administrator must act. Only the package's own finalizer is removed. The order of other finalizers and
// concurrent writes of other clients are preserved.
//
// The function must be idempotent: it is called again after an error and after a restart, unless
// the finalizer was already removed. Its context is canceled when the program loses leadership,
// the Namespace is deleted, or the finalizer is removed.
//
// # Adding the finalizer
//
// Add the finalizer when the Namespace is created, otherwise the Namespace may be deleted before it
// is added. Use the finalizer field of an initializer in a NamespaceInitializerConfiguration,
// initializer.WithFinalizer, or spec.finalizers in the create request. [AddFinalizer] adds it to
// existing Namespaces and shortly after the creation of new ones.
//
// # Permissions
//
// get, list and watch on namespaces, and update on namespaces/finalize, all at cluster scope. The
// condition also requires patch on namespaces/status; without it one log line reports that the
// condition is not written. [Check] reports missing permissions.
//
// # Condition
//
// The condition's type is the name of the finalizer. It is False while the finalizer holds the
// Namespace, with one of these reasons: Retrying with the error, Panicked, Working while a call
// takes longer than ten seconds, or the reason and message of [NotYet] and [Progress]. It is True
// with the [Result] if other finalizers still hold the Namespace.
package finalizer
