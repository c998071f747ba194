// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package initializer implements an initializer: a function that prepares each new Namespace
// before its users can write to it.
//
//	err := initializer.Add(mgr, "limits.corp.example.com",
//		func(ctx context.Context, namespace *corev1.Namespace) (initializer.Result, error) {
//			return initializer.Result{}, applyLimits(ctx, namespace.Name)
//		})
//
// The name is one that a NamespaceInitializerConfiguration registers, and mgr is any
// controller-runtime manager. [Add] watches the initializing Namespaces, and calls the [Func] for
// each one whose pending list names this initializer, when its turn comes. When the Func returns
// nil, Add removes the name from the pending list, and changes nothing else. After a conflict with
// another writer Add reads the Namespace and writes again, without another call.
//
// # What a Func returns
//
//	nil                     success; the name is removed from the pending list
//	[Failed]                permanent failure; the Namespace gets a result, and the operator deletes it
//	[NotYet]                waiting; called again after the duration, or when the Namespace changes
//	any other error         called again with backoff, see [WithBackoff]
//	a panic                 the same; other Namespaces are not affected
//
// A Func must be idempotent: it is called again for the same Namespace after an error, and if the
// process stopped between its work and the write. Use server-side apply, or compare existing
// objects. Do not treat AlreadyExists as success: the object may come from a delayed request of
// another user that was meant for an earlier Namespace of the same name.
//
// A Func is not called for a Namespace that is terminating, has failed, or is not waiting for it.
// Its context is canceled when one of these becomes true. A Func that neither returns nor respects
// its context blocks one of the workers, see [WithWorkers]: set timeouts on its requests.
//
// # Condition
//
// The condition "<name>/Initialized" of the Namespace explains the wait. It contains the reason and
// message of [NotYet] and [Progress], or the reason Retrying or Panicked with the error. Add
// publishes Working if the Func has published nothing for ten seconds, since the operator reports
// an initializer as unresponsive after one minute without a condition. The reasons Pending,
// Completed, TimedOut and Deregistered are reserved for the operator, and are replaced by Waiting,
// Progressing or Initialized. Nothing in this package depends on the condition. Messages are
// truncated to 1024 bytes.
//
// # Permissions
//
// The verbs get, list, watch, patch and initialize on namespaces, granted by a
// ClusterRoleBinding, and the permissions of the Func. Optional permissions:
//
//   - patch namespaces/status, without which no condition is published
//   - update namespaces/finalize, for [WithFinalizer] if the configuration does not name the
//     finalizer
//   - get namespaceinitializersets.nslifecycle.dev, with which [Check] can report that the
//     name is not registered
//
// # Rate limits
//
// A configuration from controller-runtime's GetConfig has no client-side rate limit. One from
// client-go's InClusterConfig allows five requests per second, with bursts of ten. This package
// uses the QPS of the configuration, or no limit if it is not set. The requests of the Func use
// the Func's own client.
package initializer
