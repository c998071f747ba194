// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package finalizer calls a cleanup function for each Namespace that is being deleted. The Namespace is not removed
// until the function has succeeded. Use this package for resources outside the Namespace, such as an index in a
// search service, a bucket or an account.
//
// The program owns a namespace finalizer: an entry in spec.finalizers, in addition to "kubernetes". The API server
// removes a Namespace only when spec.finalizers is empty. [Add] adds a controller that calls a [Func] when a
// Namespace with the finalizer is being deleted. The controller retries after errors, reports progress in a condition
// of the Namespace, and removes the finalizer when the Func returns nil. It works with any controller-runtime
// manager, and does not require nslifecycle to be installed.
//
//	err := finalizer.Add(mgr, "search.example.com/index",
//		func(ctx context.Context, namespace *corev1.Namespace) (finalizer.Result, error) {
//			return finalizer.Result{}, indices.Delete(ctx, string(namespace.UID))
//		})
//
// # Life cycle
//
//	not being deleted, or without the finalizer ──▶ ignored
//	   │ deletionTimestamp is set, finalizer is present
//	   ▼
//	waits for the content to be deleted, with AfterContent
//	   │
//	   ▼                   ┌─▶ NotYet              condition; called again after the duration or on a change
//	the function is called ├─▶ other error, panic  condition; called again with backoff
//	   ▲               │   └─▶ nil                 the finalizer is removed
//	   └───────────────┘
//
// The finalizer is removed only after the function has returned nil for the Namespace with this UID. There is no
// permanent failure: return nil if no resources remain, and an error if an administrator must act. Only this
// finalizer is removed. The order of other finalizers and concurrent writes by other clients are preserved.
//
// The function must be idempotent: it is called again after an error, and can be called again after a restart. Its
// context is canceled when the program loses leadership, the Namespace is deleted, or the finalizer is removed.
//
// # Adding the finalizer
//
// Add the finalizer when the Namespace is created; otherwise, the Namespace can be deleted before the finalizer is
// added. Use the finalizer field of an initializer in a NamespaceInitializerConfiguration, initializer.WithFinalizer,
// or spec.finalizers in the create request. [AddFinalizer] adds the finalizer to existing Namespaces, and to new
// Namespaces shortly after their creation.
//
// # Permissions
//
// The program requires the verbs get, list and watch on namespaces, and update on namespaces/finalize, all at cluster
// scope. To publish the condition, it also requires patch on namespaces/status. If this permission is missing, the
// program logs once that it does not publish the condition. [Check] reports missing permissions. [WithWatch] requires
// list and watch on the objects.
//
// # Condition
//
// The type of the condition is the name of the finalizer. The condition is False until the finalizer is removed, with
// one of these reasons: Retrying with the error, Panicked, Working if a call runs for more than ten seconds and the
// Namespace does not have the condition yet, or the reason and message of [NotYet] and [Progress]. The condition is
// True with the [Result] if the finalizer was removed and other finalizers remain. It stays False if the program does
// not receive the response to the removal of the finalizer.
package finalizer
